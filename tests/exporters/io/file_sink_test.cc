#include "io/file_sink.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/export.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "support/random_trace.h"
#include "support/temp_folder.h"

namespace stepscope::file_sink_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string ReadPlain(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string ReadGzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  std::string text;
  char buffer[4096];
  for (int n = 0; (n = gzread(file, buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  gzclose(file);
  return text;
}

size_t FilesIn(const std::string& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

// Limits the size of files that this process may write.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_;
  void (*old_handler_)(int);
};

TEST(FileSinkTest, WritesSeveralBlocksInOrder) {
  const TempFolder folder;
  for (auto compression :
       {FileSink::Compression::kNone, FileSink::Compression::kGzip}) {
    const std::string path = folder.path().string() + "/out";
    auto sink = FileSink::Make(path, compression);
    ASSERT_TRUE(sink.ok()) << sink.status();
    std::string all;
    for (int i = 0; i < 400'000; ++i) {
      const std::string line = "line " + std::to_string(i) + "\n";
      (*sink)->block() += line;
      all += line;
      (*sink)->Flush();
    }
    ASSERT_TRUE((*sink)->Close().ok());
    EXPECT_TRUE((compression == FileSink::Compression::kGzip
                     ? ReadGzip(path)
                     : ReadPlain(path)) == all);
  }
}

TEST(FileSinkTest, ShowsTheFileOnlyWhenItIsWhole) {
  const TempFolder folder;
  const std::string path = folder.path().string() + "/out.json";
  auto sink = FileSink::Make(path, FileSink::Compression::kNone);
  ASSERT_TRUE(sink.ok());
  (*sink)->block() = "half";
  EXPECT_FALSE(fs::exists(path));
  ASSERT_TRUE((*sink)->Close().ok());
  EXPECT_EQ(ReadPlain(path), "half");
  EXPECT_EQ(FilesIn(folder.path().string()), 1u);
}

TEST(FileSinkTest, AnUnnamedFileIsSeenOnlyWhenItIsWhole) {
  const TempFolder folder;
  const int probe = open(folder.At("").c_str(), O_WRONLY | O_TMPFILE, 0600);
  if (probe < 0) GTEST_SKIP() << "the file system has no unnamed files";
  close(probe);
  const std::string path = folder.At("out.json");
  size_t files = 0;
  for (const char* text : {"first", "second"}) {
    auto sink = FileSink::Make(path, FileSink::Compression::kNone,
                               FileSink::Temporary::kUnnamed);
    ASSERT_TRUE(sink.ok()) << sink.status();
    EXPECT_EQ(FilesIn(folder.At("")), files);
    (*sink)->block() = text;
    ASSERT_TRUE((*sink)->Close().ok());
    EXPECT_EQ(ReadPlain(path), text);
    files = FilesIn(folder.At(""));
    EXPECT_EQ(files, 1u);
  }
}

TEST(FileSinkTest, LeavesNothingBehindWhenItIsGivenUp) {
  const TempFolder folder;
  {
    auto sink = FileSink::Make(folder.path().string() + "/out.json",
                               FileSink::Compression::kGzip);
    ASSERT_TRUE(sink.ok());
    (*sink)->block() = "half";
  }
  EXPECT_EQ(FilesIn(folder.path().string()), 0u);
}

TEST(FileSinkTest, ReplacesWhatALinkPointsTo) {
  const TempFolder folder;
  fs::create_directory(folder.At("runs"));
  fs::create_symlink("runs/out.json", folder.At("latest.json"));
  fs::create_symlink("latest.json", folder.At("newest.json"));
  for (const char* text : {"first", "second"}) {
    ASSERT_TRUE(WriteText(text, folder.At("newest.json")).ok());
    EXPECT_EQ(ReadPlain(folder.At("runs/out.json")), text);
    EXPECT_EQ(fs::read_symlink(folder.At("newest.json")), "latest.json");
    EXPECT_EQ(fs::read_symlink(folder.At("latest.json")), "runs/out.json");
  }
  EXPECT_EQ(FilesIn(folder.At("runs")), 1u);
  // The kernel follows no circle either; the link is replaced.
  fs::create_symlink("circle.json", folder.At("circle.json"));
  EXPECT_TRUE(WriteText("x", folder.At("circle.json")).ok());
}

TEST(FileSinkTest, WritesToAPipeWithoutReplacingIt) {
  const TempFolder folder;
  const std::string path = folder.At("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::string text;
  std::thread reader([&] { text = ReadPlain(path); });
  EXPECT_TRUE(WriteText("through the pipe", path).ok());
  reader.join();
  EXPECT_EQ(text, "through the pipe");
  EXPECT_TRUE(fs::is_fifo(path));
  EXPECT_EQ(FilesIn(folder.path().string()), 1u);
  EXPECT_TRUE(WriteText("nowhere", "/dev/null").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(FileSinkTest, KeepsTheOldFileWhenTheNewOneFails) {
  const TempFolder folder;
  const std::string path = folder.path().string() + "/out.json";
  std::ofstream(path) << "old";
  const FileSizeLimit limit(4096);
  const absl::Status status =
      WriteTrace(RandomTrace({}), {}, Format::kChromeTb, path);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReadPlain(path), "old");
  EXPECT_EQ(FilesIn(folder.path().string()), 1u);
}

TEST(WriteTraceTest, EachFormatReportsAFullDiskAndCleansUp) {
  const TempFolder folder;
  const Trace trace = RandomTrace({});
  const FileSizeLimit limit(4096);
  for (Format format : {Format::kChromeTb, Format::kChromeKineto,
                        Format::kXSpace, Format::kText}) {
    const absl::Status status = WriteTrace(
        trace, {}, format, folder.path().string() + "/trace.json.gz");
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("trace.json.gz"));
    EXPECT_EQ(FilesIn(folder.path().string()), 0u);
  }
}

TEST(WriteTraceTest, SaysWhichFolderIsMissing) {
  const TempFolder folder;
  const absl::Status status =
      WriteTrace(Trace(), {}, Format::kText,
                 folder.path().string() + "/not-there/out.txt");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("not-there"), HasSubstr("create the folder")));
}

TEST(WriteTraceTest, RefusesAFolderAsItsFile) {
  const TempFolder folder;
  fs::create_directory(folder.path().string() + "/taken");
  const absl::Status status =
      WriteTrace(Trace(), {}, Format::kText, folder.path().string() + "/taken");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FilesIn(folder.path().string()), 1u);
  EXPECT_EQ(WriteTrace(Trace(), {}, Format::kText, "").code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(WriteTraceTest, SaysThatAFolderIsNotWritable) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  const TempFolder folder;
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  const absl::Status status = WriteTrace(Trace(), {}, Format::kText,
                                         folder.path().string() + "/out.txt");
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  fs::permissions(folder.path(), fs::perms::owner_all);
}

}  // namespace
}  // namespace stepscope::file_sink_test
