#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/export.h>
#include <stepscope/logdir.h>
#include <stepscope/trace_builder.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/temp_folder.h"

namespace stepscope::resolve_path_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ResolvePathTest : public testing::Test {
 protected:
  // Writes both flavours of one rank and cycle, as a profile does.
  void WriteRank(const std::string& run, int32_t rank, int32_t cycle) {
    const LogPaths paths =
        PathsFor(folder_.path().string(), run, "node", rank, cycle);
    TraceBuilder builder;
    builder.run().rank = rank;
    builder.run().cycle = cycle;
    builder.run().run_id = run;
    const Trace trace = builder.Build();
    Write(trace, Format::kChromeKineto, paths.chrome_kineto);
    Write(trace, Format::kChromeTb, paths.chrome_tb);
    folder_.Write("stepscope/" + run + "/c" + std::to_string(cycle) +
                      "/advice/rank" + std::to_string(rank) + ".json",
                  "{}");
  }

  void Write(const Trace& trace, Format format, const std::string& path) {
    std::filesystem::create_directories(
        std::filesystem::path(path).parent_path());
    const absl::Status status = WriteTrace(trace, {}, format, path);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  ResolvedRun Resolve(const std::string& path, const std::string& run = "",
                      int32_t cycle = -1) {
    absl::StatusOr<ResolvedRun> found =
        ResolvePath(folder_.At(path), run, cycle);
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() ? *found : ResolvedRun();
  }
  std::string Error(const std::string& path, const std::string& run = "",
                    int32_t cycle = -1) {
    absl::StatusOr<ResolvedRun> found =
        ResolvePath(folder_.At(path), run, cycle);
    EXPECT_FALSE(found.ok());
    return std::string(found.status().message());
  }
  // Returns the files relative to the test's folder.
  std::vector<std::string> Files(const ResolvedRun& run) {
    std::vector<std::string> files;
    for (const std::string& file : run.trace_files) {
      files.push_back(std::filesystem::relative(file, folder_.path()).string());
    }
    return files;
  }

  TempFolder folder_;
  const std::string kForeign =
      R"({"schemaVersion": 1, "traceEvents": [{"ph": "X"}]})";
};

TEST_F(ResolvePathTest, LogDirectoryMeansItsNewestRunLastCycleAllRanks) {
  WriteRank("2026_01_01_00_00_00", 0, 0);
  WriteRank("2026_01_02_00_00_00", 10, 0);
  for (int32_t rank : {0, 2, 10}) WriteRank("2026_01_02_00_00_00", rank, 1);
  const ResolvedRun run = Resolve("");
  EXPECT_EQ(run.run, "2026_01_02_00_00_00");
  EXPECT_EQ(run.cycle, 1);
  EXPECT_THAT(
      Files(run),
      ElementsAre("stepscope/2026_01_02_00_00_00/c1/trace/rank0.json.gz",
                  "stepscope/2026_01_02_00_00_00/c1/trace/rank2.json.gz",
                  "stepscope/2026_01_02_00_00_00/c1/trace/rank10.json.gz"));
  EXPECT_THAT(run.passed_over, IsEmpty());
}

TEST_F(ResolvePathTest, TheNewestRunIsFoundByItsTimeNotByItsName) {
  WriteRank(RunName("zebra", "2026_01_01_00_00_00"), 0, 0);
  const std::string newest = RunName("alpha", "2026_01_02_00_00_00");
  WriteRank(newest, 0, 0);
  EXPECT_EQ(Resolve("").run, newest);
  EXPECT_EQ(Resolve("stepscope").run, newest);
  EXPECT_THAT(Files(Resolve("", "zebra_2026_01_01_00_00_00")),
              ElementsAre("stepscope/zebra_2026_01_01_00_00_00/c0/trace/"
                          "rank0.json.gz"));
  EXPECT_THAT(Error("", "zebra"),
              HasSubstr("there are: zebra_2026_01_01_00_00_00, alpha_2026"));
}

TEST_F(ResolvePathTest, RunsOfTheOldLayoutAreComparedByTheSameTime) {
  WriteRank("2026_01_02_00_00_00", 0, 0);
  WriteRank(RunName("zebra", "2026_01_01_00_00_00"), 0, 0);
  EXPECT_EQ(Resolve("").run, "2026_01_02_00_00_00");
  WriteRank(RunName("alpha", "2026_01_03_00_00_00"), 0, 0);
  EXPECT_EQ(Resolve("").run, "alpha_2026_01_03_00_00_00");
  // A process whose name was taken appends its number.
  WriteRank("2026_01_04_00_00_00_1234_2", 0, 0);
  EXPECT_EQ(Resolve("").run, "2026_01_04_00_00_00_1234_2");
}

TEST_F(ResolvePathTest, ATimeInTheNameOfAUserIsNotTheStart) {
  WriteRank(RunName("of_2099_01_01_00_00_00", "2026_01_01_00_00_00"), 0, 0);
  WriteRank(RunName("x2098_01_01_00_00_00", "2026_01_02_00_00_00"), 0, 0);
  EXPECT_EQ(Resolve("").run, "x2098_01_01_00_00_00_2026_01_02_00_00_00");
  // A renamed folder has no time and counts as older than all others.
  WriteRank("zzz", 0, 0);
  EXPECT_EQ(Resolve("").run, "x2098_01_01_00_00_00_2026_01_02_00_00_00");
}

TEST_F(ResolvePathTest, CycleTenIsBehindCycleNine) {
  for (int32_t cycle : {9, 10}) WriteRank("r", 0, cycle);
  EXPECT_EQ(Resolve("").cycle, 10);
}

TEST_F(ResolvePathTest, RunAndCycleCanBeChosen) {
  WriteRank("a", 0, 0);
  WriteRank("a", 0, 1);
  WriteRank("b", 0, 0);
  EXPECT_THAT(Files(Resolve("", "a", 0)),
              ElementsAre("stepscope/a/c0/trace/rank0.json.gz"));
  EXPECT_THAT(Error("", "c"), HasSubstr("there are: a, b"));
  EXPECT_THAT(Error("", "a", 7), HasSubstr("there are: 0, 1"));
}

TEST_F(ResolvePathTest, DeeperPathsMeanWhatIsThere) {
  WriteRank("a", 0, 0);
  WriteRank("a", 1, 1);
  const std::string c1 = "stepscope/a/c1/trace/rank1.json.gz";
  EXPECT_THAT(Files(Resolve("stepscope")), ElementsAre(c1));
  EXPECT_THAT(Files(Resolve("stepscope/a")), ElementsAre(c1));
  EXPECT_THAT(Files(Resolve("stepscope/a/")), ElementsAre(c1));
  EXPECT_THAT(Files(Resolve("stepscope/a/c1")), ElementsAre(c1));
  EXPECT_THAT(Files(Resolve("stepscope/a/c1/trace")), ElementsAre(c1));
  EXPECT_THAT(Files(Resolve(c1)), ElementsAre(c1));
  const ResolvedRun zero = Resolve("stepscope/a/c0");
  EXPECT_EQ(zero.run, "a");
  EXPECT_EQ(zero.cycle, 0);
  EXPECT_THAT(Files(zero), ElementsAre("stepscope/a/c0/trace/rank0.json.gz"));
}

TEST_F(ResolvePathTest, FolderOfThePluginGivesItsLastCycle) {
  for (int32_t rank : {0, 1}) {
    for (int32_t cycle : {0, 1}) WriteRank("a", rank, cycle);
  }
  const ResolvedRun run = Resolve("a");
  EXPECT_THAT(Files(run), ElementsAre("a/node_00000.000001.pt.trace.json.gz",
                                      "a/node_00001.000001.pt.trace.json.gz"));
  EXPECT_EQ(run.passed_over.size(), 2u);
  EXPECT_THAT(Files(Resolve("a", "", 0)),
              ElementsAre("a/node_00000.000000.pt.trace.json.gz",
                          "a/node_00001.000000.pt.trace.json.gz"));
}

TEST_F(ResolvePathTest, BothFlavoursOfARankAreOneRank) {
  WriteRank("a", 0, 0);
  std::filesystem::create_directories(folder_.path() / "mixed");
  std::filesystem::copy_file(
      folder_.At("a/node_00000.000000.pt.trace.json.gz"),
      folder_.At("mixed/node_00000.000000.pt.trace.json.gz"));
  std::filesystem::copy_file(folder_.At("stepscope/a/c0/trace/rank0.json.gz"),
                             folder_.At("mixed/rank0.json.gz"));
  const ResolvedRun run = Resolve("mixed");
  EXPECT_THAT(Files(run), ElementsAre("mixed/rank0.json.gz"));
  ASSERT_EQ(run.passed_over.size(), 1u);
  EXPECT_THAT(run.passed_over[0], HasSubstr("the same rank"));
}

TEST_F(ResolvePathTest, AMergedTimelineIsNoRank) {
  folder_.Write("job/rank0.json", kForeign);
  folder_.Write("job/rank1.json", kForeign);
  folder_.Write("job/merged.json",
                R"({"schemaVersion": 1, "stepscope.timeline": 1,
                    "traceEvents": []})");
  const ResolvedRun run = Resolve("job");
  EXPECT_THAT(Files(run), ElementsAre("job/rank0.json", "job/rank1.json"));
  ASSERT_EQ(run.passed_over.size(), 1u);
  EXPECT_THAT(run.passed_over[0], HasSubstr("merged from several ranks"));
}

TEST_F(ResolvePathTest, ForeignFolderIsOneRunOfItsFiles) {
  folder_.Write("job/worker1.pt.trace.json", kForeign);
  folder_.Write("job/worker0.pt.trace.json", kForeign);
  folder_.Write("job/rank2.json.gz", Gzip(kForeign));
  folder_.Write("job/notes.txt", "hello");
  folder_.Write("job/config.json", "{\"lr\": 1}");
  folder_.Write("job/half.json.tmp", "{");
  const ResolvedRun run = Resolve("job");
  EXPECT_EQ(run.run, "job");
  EXPECT_EQ(run.cycle, -1);
  EXPECT_THAT(Files(run),
              ElementsAre("job/rank2.json.gz", "job/worker0.pt.trace.json",
                          "job/worker1.pt.trace.json"));
  ASSERT_EQ(run.passed_over.size(), 3u);
  EXPECT_THAT(run.passed_over[0], HasSubstr("config.json"));
  EXPECT_THAT(run.passed_over[0], HasSubstr("traceEvents"));
  // Files that may be traces of ranks.
  ASSERT_EQ(run.unreadable.size(), 2u);
  EXPECT_EQ(run.unreadable[0].path, folder_.At("job/config.json"));
  EXPECT_THAT(run.unreadable[0].why, HasSubstr("config.json is not a trace: "));
  EXPECT_THAT(run.passed_over[0],
              HasSubstr("config.json: it is not a trace: it looks like"));
  EXPECT_THAT(run.passed_over[0], Not(HasSubstr("Use a file")));
  EXPECT_EQ(run.unreadable[1].path, folder_.At("job/half.json.tmp"));
}

TEST_F(ResolvePathTest, XSpacesAreTakenWhereThereIsNoChromeTrace) {
  Write(TraceBuilder().Build(), Format::kXSpace, folder_.At("job/b.xplane.pb"));
  Write(TraceBuilder().Build(), Format::kXSpace, folder_.At("job/a.xplane.pb"));
  folder_.Write("job/c.xplane.pb", "no XSpace");
  const ResolvedRun run = Resolve("job");
  EXPECT_THAT(Files(run), ElementsAre("job/a.xplane.pb", "job/b.xplane.pb"));
  ASSERT_EQ(run.passed_over.size(), 1u);
  EXPECT_THAT(run.passed_over[0], HasSubstr("c.xplane.pb"));
  EXPECT_THAT(run.unreadable, IsEmpty());

  folder_.Write("job/d.json", kForeign);
  EXPECT_THAT(Files(Resolve("job")), ElementsAre("job/d.json"));
}

TEST_F(ResolvePathTest, SpansOfOneWorkerAreCyclesNotRanks) {
  folder_.Write("job/w0.99.pt.trace.json", kForeign);
  folder_.Write("job/w0.1623143089861.pt.trace.json", kForeign);
  EXPECT_THAT(Files(Resolve("job")),
              ElementsAre("job/w0.1623143089861.pt.trace.json"));
  EXPECT_THAT(Files(Resolve("job", "", 0)),
              ElementsAre("job/w0.99.pt.trace.json"));
}

TEST_F(ResolvePathTest, RunWithoutTracesIsPassedOverForAnOlderOne) {
  WriteRank("2026_01_01_00_00_00", 0, 0);
  std::filesystem::create_directories(folder_.path() /
                                      "stepscope/2026_01_02_00_00_00/c0/trace");
  const ResolvedRun run = Resolve("");
  EXPECT_EQ(run.run, "2026_01_01_00_00_00");
  ASSERT_EQ(run.passed_over.size(), 1u);
  EXPECT_THAT(run.passed_over[0], HasSubstr("2026_01_02_00_00_00"));
}

// A writer leaves such a file until the trace is complete, or for ever if it is
// killed.
TEST_F(ResolvePathTest, RunThatIsBeingWrittenIsPassedOverForACompleteOne) {
  WriteRank("2026_01_01_00_00_00", 0, 0);
  folder_.Write("stepscope/2026_01_02_00_00_00/c0/trace/rank0.json.gz.77.0.tmp",
                "{");
  const ResolvedRun run = Resolve("");
  EXPECT_EQ(run.run, "2026_01_01_00_00_00");
  ASSERT_EQ(run.passed_over.size(), 1u);
  EXPECT_THAT(run.passed_over[0], HasSubstr("2026_01_02_00_00_00"));
  EXPECT_THAT(run.passed_over[0], HasSubstr("being written"));
}

TEST_F(ResolvePathTest, RunOfWhichOneRankIsMissingIsPassedOverToo) {
  WriteRank("2026_01_01_00_00_00", 0, 0);
  WriteRank("2026_01_02_00_00_00", 0, 0);
  folder_.Write("stepscope/2026_01_02_00_00_00/c0/trace/rank1.json.gz.77.0.tmp",
                "{");
  EXPECT_EQ(Resolve("").run, "2026_01_01_00_00_00");
  const ResolvedRun part = Resolve("", "2026_01_02_00_00_00");
  EXPECT_THAT(
      Files(part),
      ElementsAre("stepscope/2026_01_02_00_00_00/c0/trace/rank0.json.gz"));
  ASSERT_EQ(part.passed_over.size(), 1u);
  EXPECT_THAT(part.passed_over[0], HasSubstr("rank1.json.gz.77.0.tmp: it is"));
}

TEST_F(ResolvePathTest, PartOfARunIsTakenWhereNoneIsComplete) {
  WriteRank("2026_01_01_00_00_00", 0, 0);
  folder_.Write("stepscope/2026_01_01_00_00_00/c0/trace/rank1.json.gz.77.0.tmp",
                "{");
  EXPECT_EQ(Resolve("").trace_files.size(), 1u);
}

TEST_F(ResolvePathTest, CycleThatIsBeingWrittenIsPassedOverForACompleteOne) {
  WriteRank("a", 0, 0);
  folder_.Write("stepscope/a/c1/trace/rank0.json.gz.77.0.tmp", "{");
  for (const char* path : {"", "stepscope/a"}) {
    const ResolvedRun run = Resolve(path);
    EXPECT_EQ(run.cycle, 0);
    ASSERT_EQ(run.passed_over.size(), 1u);
    EXPECT_THAT(run.passed_over[0], HasSubstr("c1: it is incomplete"));
  }
  EXPECT_THAT(Error("", "", 1), HasSubstr("rank0.json.gz.77.0.tmp"));
}

// torch.profiler writes to the final name from the start.
TEST_F(ResolvePathTest, CutFileOfALaterCycleIsPassedOverForACompleteOne) {
  folder_.Write("job/w0.100.pt.trace.json", kForeign);
  folder_.Write("job/w0.200.pt.trace.json",
                kForeign.substr(0, kForeign.size() - 4));
  const ResolvedRun run = Resolve("job");
  EXPECT_THAT(Files(run), ElementsAre("job/w0.100.pt.trace.json"));
  ASSERT_EQ(run.passed_over.size(), 1u);
  EXPECT_THAT(run.passed_over[0], HasSubstr("is truncated"));
  EXPECT_THAT(Files(Resolve("job", "", 1)),
              ElementsAre("job/w0.200.pt.trace.json"));
}

// Opening a pipe would wait for a writer.
TEST_F(ResolvePathTest, PipesAndSocketsInAFolderAreNamedAndNotOpened) {
  folder_.Write("job/w0.pt.trace.json", kForeign);
  ASSERT_EQ(mkfifo(folder_.At("job/a.json").c_str(), 0600), 0);
  ASSERT_EQ(mkfifo(folder_.At("job/b.xplane.pb").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", folder_.At("job/c.json"));
  const ResolvedRun run = Resolve("job");
  EXPECT_THAT(Files(run), ElementsAre("job/w0.pt.trace.json"));
  EXPECT_THAT(run.passed_over,
              ElementsAre(HasSubstr("a.json: it is a pipe"),
                          HasSubstr("b.xplane.pb: it is a pipe"),
                          HasSubstr("c.json: it is a device")));
  std::filesystem::remove(folder_.At("job/w0.pt.trace.json"));
  EXPECT_THAT(Error("job"), HasSubstr("a.json: it is a pipe"));
  EXPECT_TRUE(RunsIn(folder_.path().string()).ok());
}

TEST_F(ResolvePathTest, OfManyStrayFilesTheFirstAreNamed) {
  constexpr int kFiles = 300;
  for (int i = 0; i < kFiles; ++i)
    folder_.Write("job/stray" + std::to_string(i) + ".json", "{\"lr\": 1}");
  EXPECT_LT(Error("job").size(), 10'000u);
  EXPECT_THAT(Error("job"), HasSubstr(std::to_string(kFiles - 20) + " more"));
  folder_.Write("job/w0.pt.trace.json", kForeign);
  EXPECT_EQ(Resolve("job").passed_over.size(), 21u);
}

TEST_F(ResolvePathTest, FilesOfOtherNamesAreCounted) {
  folder_.Write("job/a.txt", "");
  EXPECT_THAT(Error("job"),
              HasSubstr("job/a.txt: its name does not end in .json"));
  folder_.Write("job/b.txt", "");
  folder_.Write("job/c", "");
  EXPECT_THAT(Error("job"), HasSubstr("skipped: " + folder_.At("job") +
                                      ": 3 files have other names, such as "
                                      "a.txt"));
}

TEST_F(ResolvePathTest, WhatAPathHasNoChoiceOfIsAnError) {
  WriteRank("a", 0, 0);
  const std::string file = "stepscope/a/c0/trace/rank0.json.gz";
  EXPECT_THAT(Error(file, "a"), HasSubstr("no run 'a' in"));
  EXPECT_THAT(Error(file, "", 0), HasSubstr("no cycle 0 in"));
  EXPECT_THAT(Files(Resolve("stepscope/a/c0", "a", 0)), ElementsAre(file));
  EXPECT_THAT(Error("stepscope/a/c0", "b", 1),
              HasSubstr("no run 'b' and no cycle 1 in"));
  EXPECT_THAT(Error("stepscope/a", "b"), HasSubstr("it is one run"));
  folder_.Write("job/w0.pt.trace.json", kForeign);
  EXPECT_THAT(Error("job", "a"), HasSubstr("a folder of traces without runs"));
}

TEST_F(ResolvePathTest, SaysWhatItLookedFor) {
  EXPECT_THAT(Error("nowhere"), HasSubstr("nowhere"));
  folder_.Write("top/a/x.json", kForeign);
  const std::string message = Error("top");
  EXPECT_THAT(message, HasSubstr("*.json"));
  EXPECT_THAT(message, HasSubstr("top/a"));
}

}  // namespace
}  // namespace stepscope::resolve_path_test
