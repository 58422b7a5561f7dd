#include "io/file_sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "io/errno_status.h"

namespace stepscope {
namespace {

// The longest queue. It bounds the memory if the disk is slower than the
// writer: HandOver() then waits.
constexpr size_t kQueuedBlocks = 4;
// Level 1 takes a third of the time of level 6; files are a tenth larger.
constexpr int kGzipLevel = 1;

std::atomic<unsigned> next_name{0};

// A name in the same folder, so that rename() cannot cross file systems. The
// suffix keeps viewers that watch the folder from opening it.
std::string TemporaryName(const std::string& path) {
  return path + "." + std::to_string(getpid()) + "." +
         std::to_string(next_name.fetch_add(1)) + ".tmp";
}

// What exists at `path`, if anything does.
enum class Target { kNewOrFile, kFolder, kPipeOrDevice };

Target TargetAt(const std::string& path) {
  struct stat about = {};
  if (stat(path.c_str(), &about) != 0 || S_ISREG(about.st_mode)) {
    return Target::kNewOrFile;
  }
  return S_ISDIR(about.st_mode) ? Target::kFolder : Target::kPipeOrDevice;
}

// Returns what a symbolic link points to, through several links. That may not
// exist yet.
std::string FollowLinks(std::filesystem::path path) {
  constexpr int kMostLinks = 40;  // as the kernel follows
  std::error_code error;
  for (int i = 0; i < kMostLinks; ++i) {
    const std::filesystem::path to = std::filesystem::read_symlink(path, error);
    if (error) break;  // not a link
    path = path.parent_path() / to;
  }
  return path.string();
}

std::string ProcPath(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

// Opens a file without a name in the folder of `path`; -1 if the file system,
// or a missing /proc, does not allow to name it later.
int OpenUnnamed(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const int fd = open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0644);
  if (fd < 0 || access(ProcPath(fd).c_str(), F_OK) == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace

// Owns the file descriptor and the queue; its thread is the only one that
// writes. `mutex` guards blocks, spare and finish.
struct FileSink::Worker {
  std::string path;
  std::string temporary;  // empty for a pipe or a device
  bool unnamed = false;   // `temporary` is not yet the file's name
  int fd = -1;
  bool gzip = false;
  z_stream stream = {};
  std::string packed;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> blocks;
  std::deque<std::string> spare;
  bool finish = false;
  std::atomic<int> error{0};  // errno of the first failure
  std::thread thread;

  ~Worker() {
    if (gzip) deflateEnd(&stream);
    if (fd >= 0) close(fd);
  }

  // 0 or an errno. O_EXCL: never write through a link that somebody else put
  // there.
  int Open() {
    if (unnamed) fd = OpenUnnamed(path);
    unnamed = fd >= 0;
    if (unnamed) return 0;
    fd = temporary.empty()
             ? open(path.c_str(), O_WRONLY | O_CLOEXEC)
             : open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                    0644);
    return fd < 0 ? errno : 0;
  }

  void RemoveTemporary() const {
    if (!temporary.empty() && !unnamed) unlink(temporary.c_str());
  }

  // Gives an unnamed file its temporary name. 0 or an errno.
  int Name() {
    if (unnamed && linkat(AT_FDCWD, ProcPath(fd).c_str(), AT_FDCWD,
                          temporary.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return errno;
    }
    unnamed = false;
    return 0;
  }

  // write() may write less than asked, and a signal may interrupt it.
  void WriteBytes(const char* data, size_t size) {
    while (size > 0 && error.load() == 0) {
      const ssize_t written = write(fd, data, size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        error.store(written < 0 ? errno : ENOSPC);
        return;
      }
      data += written;
      size -= static_cast<size_t>(written);
    }
  }

  // Calls zlib until it leaves room in `packed`: it has then taken the whole
  // block or, when finishing, has written the end of the stream.
  void Compress(const std::string& block, int flush) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(block.data()));
    stream.avail_in = static_cast<uInt>(block.size());
    int result = Z_OK;
    do {
      stream.next_out = reinterpret_cast<Bytef*>(packed.data());
      stream.avail_out = static_cast<uInt>(packed.size());
      result = deflate(&stream, flush);
      WriteBytes(packed.data(), packed.size() - stream.avail_out);
    } while (stream.avail_out == 0 ||
             (flush == Z_FINISH && result == Z_OK && error.load() == 0));
  }

  void Run() {
    while (true) {
      std::string block;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return finish || !blocks.empty(); });
        if (blocks.empty()) break;
        block = std::move(blocks.front());
        blocks.pop_front();
      }
      changed.notify_all();
      if (error.load() == 0) {
        if (gzip) {
          Compress(block, Z_NO_FLUSH);
        } else {
          WriteBytes(block.data(), block.size());
        }
      }
      // Returns the block's memory to the writer, so that blocks need not be
      // allocated again.
      block.clear();
      const std::lock_guard lock(mutex);
      try {
        spare.push_back(std::move(block));
      } catch (const std::bad_alloc&) {
        // Nothing would catch the exception on this thread, and the writer can
        // make a new block.
      }
    }
    if (gzip && error.load() == 0) Compress(std::string(), Z_FINISH);
  }
};

absl::StatusOr<std::unique_ptr<FileSink>> FileSink::Make(
    const std::string& path, Compression compression, Temporary temporary) {
  auto worker = std::make_unique<Worker>();
  worker->path = path;
  const Target target = TargetAt(path);
  if (target == Target::kFolder) return FileError("write", path, EISDIR);
  if (target == Target::kNewOrFile) {
    worker->path = FollowLinks(path);
    worker->temporary = TemporaryName(worker->path);
    worker->unnamed = temporary == Temporary::kUnnamed;
  }
  if (const int error = worker->Open(); error != 0)
    return FileError("create", path, error);
  if (compression == Compression::kGzip) {
    constexpr int kGzipWindowBits = 15 + 16;
    // With 9, zlib uses its largest tables (some 128 KiB more), which makes it
    // faster.
    if (deflateInit2(&worker->stream, kGzipLevel, Z_DEFLATED, kGzipWindowBits,
                     9, Z_DEFAULT_STRATEGY) != Z_OK) {
      worker->RemoveTemporary();
      return absl::ResourceExhaustedError(
          "cannot start compressing '" + path +
          "': zlib has no memory; write it without .gz");
    }
    worker->gzip = true;
    worker->packed.resize(256 << 10);
  }
  Worker* started = worker.get();
  auto sink = std::unique_ptr<FileSink>(new FileSink(std::move(worker)));
  try {
    started->thread = std::thread([started] { started->Run(); });
  } catch (const std::system_error& error) {
    started->RemoveTemporary();
    return absl::ResourceExhaustedError("cannot write '" + path +
                                        "': no thread could be started (" +
                                        error.what() + ")");
  }
  return sink;
}

FileSink::FileSink(std::unique_ptr<Worker> worker)
    : worker_(std::move(worker)) {
  // The event that fills a block goes beyond kBlockBytes, so reserve some more.
  block_.reserve(kBlockBytes + (64 << 10));
}

// Without Close() nothing is kept: the thread discards what is queued, and the
// temporary file is removed.
FileSink::~FileSink() {
  if (worker_->thread.joinable()) {
    worker_->error.store(ECANCELED);
    {
      const std::lock_guard lock(worker_->mutex);
      worker_->finish = true;
    }
    worker_->changed.notify_all();
    worker_->thread.join();
    worker_->RemoveTemporary();
  }
}

bool FileSink::failed() const { return worker_->error.load() != 0; }

void FileSink::HandOver() {
  std::unique_lock lock(worker_->mutex);
  worker_->changed.wait(lock,
                        [&] { return worker_->blocks.size() < kQueuedBlocks; });
  worker_->blocks.push_back(std::move(block_));
  if (worker_->spare.empty()) {
    block_ = std::string();
    block_.reserve(kBlockBytes + (64 << 10));
  } else {
    block_ = std::move(worker_->spare.front());
    worker_->spare.pop_front();
  }
  lock.unlock();
  worker_->changed.notify_all();
}

absl::Status FileSink::Close() {
  if (!block_.empty()) HandOver();
  {
    const std::lock_guard lock(worker_->mutex);
    worker_->finish = true;
  }
  worker_->changed.notify_all();
  worker_->thread.join();
  const std::string& temporary = worker_->temporary;
  const std::string& path = worker_->path;
  const char* what = "write";
  int error = worker_->error.load();
  if (error == 0) error = worker_->Name();
  // Some file systems report only at close() that the disk is full.
  if (close(std::exchange(worker_->fd, -1)) != 0 && error == 0) error = errno;
  // rename() replaces the old file in one step, so a reader sees either the old
  // or the new one, never a part.
  if (error == 0 && !temporary.empty() &&
      rename(temporary.c_str(), path.c_str()) != 0) {
    error = errno;
    what = "rename the finished file to";
  }
  if (error == 0) return absl::OkStatus();
  worker_->RemoveTemporary();
  return FileError(what, path, error);
}

}  // namespace stepscope
