// Runs the program as a user does, and checks the exit status and the outputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/export.h>
#include <stepscope/logdir.h>

#include <filesystem>
#include <string>

#include "support/random_trace.h"
#include "support/shell.h"
#include "support/temp_folder.h"

namespace stepscope::program_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const char* const kData = STEPSCOPE_TEST_DATA "/traces/";

class ProgramTest : public testing::Test {
 protected:
  Outcome Run(const std::string& words) {
    return RunShell("'" STEPSCOPE_PROGRAM "' " + words, folder_);
  }

  // Returns a log directory with two ranks of a random run.
  std::string LogDir() {
    for (int32_t rank : {0, 1}) {
      const LogPaths paths =
          PathsFor(folder_.At("log"), "2026_01_01_00_00_00", "node", rank, 0);
      const std::filesystem::path path = paths.chrome_kineto;
      std::filesystem::create_directories(path.parent_path());
      EXPECT_TRUE(WriteTrace(RandomTrace({.seed = 9, .rank = rank}), {},
                             Format::kChromeKineto, path.string())
                      .ok());
    }
    return folder_.At("log");
  }

  TempFolder folder_;
  const std::string trace_ =
      std::string(kData) + "resnet50_v100_workers0.pt.trace.json.gz";
};

TEST_F(ProgramTest, AnalysesARealTrace) {
  const Outcome run = Run("analyze " + trace_);
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.out, HasSubstr("6 steps"));
  EXPECT_THAT(run.out, HasSubstr("sync-data-loading"));
  EXPECT_EQ(run.err, "");
}

TEST_F(ProgramTest, PrintsNoColoursIntoAPipe) {
  EXPECT_THAT(Run("analyze " + trace_).out, Not(HasSubstr("\x1b[")));
}

TEST_F(ProgramTest, JsonIsOneObject) {
  const Outcome run = Run("analyze --format json " + trace_);
  EXPECT_EQ(run.status, 0);
  simdjson::dom::parser parser;
  simdjson::dom::object report;
  ASSERT_FALSE(parser.parse(run.out).get(report)) << run.out;
  EXPECT_EQ(int64_t(report["version"]), 2);
  EXPECT_EQ(int64_t(report["steps"]["count"]), 6);
}

TEST_F(ProgramTest, WritesToAFile) {
  const std::string file = folder_.At("report.md");
  const Outcome run =
      Run("analyze --format markdown --output " + file + " " + trace_);
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(ReadBytes(file), HasSubstr("sync-data-loading"));
}

TEST_F(ProgramTest, SaysWhereItCannotWrite) {
  const Outcome run =
      Run("analyze --output " + folder_.At("no/such/file") + " " + trace_);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("no/such/file"));
  // The program writes to the device, which must still be a device afterwards.
  EXPECT_EQ(Run("analyze --output /dev/full " + trace_).status, 1);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(ProgramTest, AnalysesEveryRankOfALogDirectory) {
  const Outcome run = Run("analyze " + LogDir());
  EXPECT_EQ(run.status, 0) << run.err;
  // RandomTrace gives them different world sizes, so their ranks are not of one
  // job, and their files tell them apart.
  EXPECT_THAT(run.out, HasSubstr("2 traces"));
  EXPECT_THAT(run.out, HasSubstr("jobs of different world sizes"));
  EXPECT_THAT(run.out, HasSubstr("rank0.json.gz ==\n"));
  EXPECT_THAT(run.out, Not(HasSubstr("rank1.json.gz ==\n")));
  EXPECT_THAT(run.out, HasSubstr("rank1.json.gz  "));
  EXPECT_THAT(Run("analyze --verbose " + LogDir()).out,
              HasSubstr("rank1.json.gz ==\n"));

  simdjson::dom::parser parser;
  simdjson::dom::array reports;
  const Outcome json = Run("analyze --format json " + LogDir());
  ASSERT_FALSE(parser.parse(json.out).get(reports)) << json.out;
  EXPECT_EQ(reports.size(), 2u);
}

TEST_F(ProgramTest, FilesThatRanksDoNotTellApartAreCalledByTheirPaths) {
  const std::string other = std::string(kData) + "h2d_a100_pageable.json.gz";
  const Outcome run = Run("analyze " + trace_ + " " + other);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("== " + trace_ + " =="));
  EXPECT_THAT(run.out, HasSubstr("\n" + other +
                                 "  10 steps of 68.4 ms; first: h2d-pageable"));
}

// Two ranks of a job with one collective each; the second rank is later.
std::string RankFile(int rank) {
  const std::string begin = std::to_string(1000 + rank * 3000);
  const std::string length = std::to_string(6000 - rank * 3000);
  return R"({"schemaVersion": 1, "distributedInfo": {"backend": "nccl",
    "rank": )" +
         std::to_string(rank) + R"(, "world_size": 2},
    "deviceProperties": [{"id": 0, "name": "X"}], "traceEvents": [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1",
     "pid": 1, "tid": 1, "ts": 0, "dur": 10000},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1,
     "tid": 1, "ts": 10, "dur": 5, "args": {"correlation": 1}},
    {"ph": "X", "cat": "kernel", "name": "ncclKernel_AllReduce_RING_LL",
     "pid": 0, "tid": 7, "ts": )" +
         begin + R"(, "dur": )" + length +
         R"(, "args": {"correlation": 1, "device": 0, "stream": 7}}]})";
}

TEST_F(ProgramTest, RanksOfOneJobAreOneReport) {
  std::filesystem::create_directories(folder_.At("ranks"));
  folder_.Write("ranks/rank0.json", RankFile(0));
  folder_.Write("ranks/rank1.json", RankFile(1));
  const Outcome run = Run("analyze " + folder_.At("ranks"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("2 ranks"));
  EXPECT_THAT(run.out, HasSubstr("imbalanced-load"));
  EXPECT_THAT(run.out, HasSubstr("ranks, ms per step"));
  EXPECT_THAT(run.out, Not(HasSubstr("== rank 0")));

  const Outcome one = Run("analyze --rank 1 " + folder_.At("ranks"));
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("rank 1 of 2"));
  EXPECT_THAT(one.out, Not(HasSubstr("imbalanced-load")));
  const Outcome none = Run("analyze --rank 7 " + folder_.At("ranks"));
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.err, HasSubstr("traces of these ranks: 0, 1"));
  EXPECT_THAT(
      Run("analyze --rank 7 " + folder_.At("ranks") + " " + trace_).err,
      HasSubstr("these ranks: 0, 1, and one that does not name its rank"));

  simdjson::dom::parser parser;
  simdjson::dom::object report;
  const Outcome json = Run("analyze --format json " + folder_.At("ranks"));
  ASSERT_FALSE(parser.parse(json.out).get(report)) << json.out;
  EXPECT_EQ(simdjson::dom::array(report["ranks"]["rows"]).size(), 2u);
}

TEST_F(ProgramTest, ATraceThatDoesNotNameItsRankIsNotChosenByOne) {
  for (const char* words : {"analyze --rank 3 ", "report -o - --rank 3 "}) {
    const Outcome run = Run(words + trace_);
    EXPECT_EQ(run.status, 1) << words;
    EXPECT_EQ(run.out, "") << words;
    EXPECT_THAT(run.err,
                StartsWith("stepscope: no trace of rank 3; this trace does not "
                           "name its rank: leave --rank out\n"));
  }
  EXPECT_THAT(Run("compare --rank 3 " + trace_ + " " + trace_).err,
              HasSubstr("this trace does not name its rank"));
}

TEST_F(ProgramTest, ATraceWithoutEventsIsAnError) {
  const std::string empty =
      folder_.Write("empty.json", R"({"traceEvents":[]})");
  for (const char* words : {"analyze ", "analyze --format json "}) {
    const Outcome run = Run(words + empty);
    EXPECT_EQ(run.status, 1) << words;
    EXPECT_EQ(run.out, "") << words;
    EXPECT_EQ(run.err, "stepscope: " + empty +
                           " has no events: was anything recorded?\n");
  }
  // The empty trace does not affect the others.
  EXPECT_EQ(Run("analyze " + empty + " " + trace_).status, 0);
}

TEST_F(ProgramTest, RanksWithoutATraceAreNamedInEveryFormat) {
  const std::string job = std::string(kData) + "dlrm_v100_8ranks";
  const std::string missing = "ranks 2, 3, 4, 5, 6 and 7 have no trace in ";
  simdjson::dom::parser parser;
  simdjson::dom::object report;
  const Outcome json = Run("analyze --format json " + job);
  ASSERT_FALSE(parser.parse(json.out).get(report)) << json.out;
  const simdjson::dom::array losses = report["losses"];
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(std::string_view(losses.at(0)["name"]), "missing-rank");
  EXPECT_EQ(std::string_view(losses.at(0)["detail"]), missing + job);
  EXPECT_EQ(int64_t(losses.at(0)["count"]), 6);
  EXPECT_THAT(Run("analyze " + job).out,
              HasSubstr("missing: ranks 2, 3, 4, 5, 6 and 7"));
  EXPECT_THAT(Run("analyze --format markdown " + job).out,
              HasSubstr("ranks 2, 3, 4, 5, 6 and 7 have no trace"));
  EXPECT_THAT(Run("report -o - " + job).out, HasSubstr(missing + job));
  // A shell would expand rank* to these files.
  const std::string files = job + "/rank0.json.gz " + job + "/rank1.json.gz";
  EXPECT_THAT(Run("analyze --format json " + files).out,
              HasSubstr(missing + "the given paths"));
  // The user did not ask for the other ranks.
  for (const std::string& one : {job + "/rank0.json.gz", "--rank 1 " + job}) {
    EXPECT_THAT(Run("analyze --format json " + one).out,
                Not(HasSubstr("missing-rank")));
  }
}

TEST_F(ProgramTest, ARankThatCannotBeReadIsNamedWithTheReason) {
  std::filesystem::create_directories(folder_.At("ranks"));
  folder_.Write("ranks/rank0.json", RankFile(0));
  folder_.Write("ranks/net_rank-1.json", "no JSON");
  const Outcome run = Run("analyze --format json " + folder_.At("ranks"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("rank 1 has no trace that can be read: " +
                                 folder_.At("ranks/net_rank-1.json")));
  // A file without a rank in its name may be of any rank.
  std::filesystem::rename(folder_.At("ranks/net_rank-1.json"),
                          folder_.At("ranks/rank.json"));
  EXPECT_THAT(Run("analyze --format json " + folder_.At("ranks")).out,
              HasSubstr("rank 1 has no trace in " + folder_.At("ranks") +
                        " that can be read: " + folder_.At("ranks/rank.json")));
  // Also if the file is given by name, not in a folder.
  EXPECT_THAT(Run("analyze --format json " + folder_.At("ranks/rank0.json") +
                  " " + folder_.At("rank1.json"))
                  .out,
              HasSubstr("rank 1 has no trace that can be read: cannot read " +
                        folder_.At("rank1.json")));
}

TEST_F(ProgramTest, ComparesBeforeAndAfter) {
  const Outcome run = Run("compare " + trace_ + " " + trace_);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("measured"));
  EXPECT_THAT(run.out, HasSubstr("no significant difference"));
  simdjson::dom::parser parser;
  simdjson::dom::object report;
  const Outcome json = Run("compare --format json " + trace_ + " " + trace_);
  ASSERT_FALSE(parser.parse(json.out).get(report)) << json.out;
  EXPECT_EQ(double(report["measured_ms"]["expected"]), 0);
  const Outcome markdown =
      Run("compare --format markdown " + trace_ + " " + trace_);
  EXPECT_EQ(markdown.status, 0);
  EXPECT_THAT(markdown.out, HasSubstr("- **measured** "));
  EXPECT_EQ(Run("compare " + trace_).status, 2);
  EXPECT_EQ(Run("compare " + trace_ + " " + folder_.At("missing")).status, 1);
}

TEST_F(ProgramTest, ExplainsItsRules) {
  const Outcome rules = Run("rules");
  EXPECT_EQ(rules.status, 0);
  EXPECT_THAT(rules.out, HasSubstr("\nstraggler-rank "));
  const Outcome one = Run("explain straggler-rank");
  EXPECT_EQ(one.status, 0);
  EXPECT_THAT(one.out, HasSubstr("\nreported when "));
  EXPECT_THAT(one.out, HasSubstr("\nreference "));
  EXPECT_THAT(one.out, HasSubstr("3.5"));
  const Outcome wrong = Run("explain stragler-rank");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'straggler-rank'"));
  EXPECT_THAT(Run("explain bucket").err,
              HasSubstr("IDs that contain it: ddp-bucket-shape"));
  EXPECT_EQ(Run("rules x").status, 2);
  EXPECT_EQ(Run("explain straggler").out, one.out);
  const Outcome several = Run("explain ddp-");
  EXPECT_EQ(several.status, 2);
  EXPECT_THAT(several.err, HasSubstr("several IDs begin with 'ddp-': ddp-"));
}

TEST_F(ProgramTest, AFolderIsNoFileToWriteTo) {
  const Outcome run =
      Run("analyze -o " + folder_.path().string() + " " + trace_);
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.err, "stepscope: cannot write '" + folder_.path().string() +
                         "': Is a directory; name a file in it\n");
}

TEST_F(ProgramTest, AFileHasNoRunsOrCyclesToChoose) {
  const Outcome run = Run("analyze --cycle 5 --run foo " + trace_);
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.err, "stepscope: no run 'foo' and no cycle 5 in " + trace_ +
                         ": it is one file; --run and --cycle choose in a log "
                         "directory\n");
}

TEST_F(ProgramTest, TheSameFileTwiceIsAnalysedOnce) {
  EXPECT_THAT(Run("analyze " + trace_ + " " + trace_).out,
              Not(HasSubstr("2 traces")));
}

TEST_F(ProgramTest, TruncatedTraceIsAnalysedAndTheLossReported) {
  const std::string whole = ReadBytes(trace_);
  const std::string cut =
      folder_.Write("cut.json.gz", whole.substr(0, whole.size() / 2));
  const Outcome run = Run("analyze " + cut);
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.err, "stepscope: " + cut +
                         " is truncated; the report covers what could be read. "
                         "Copy it again, or record it again\n");
  EXPECT_THAT(run.out, HasSubstr("the file is truncated"));
  EXPECT_THAT(run.out, HasSubstr("byte"));
}

TEST_F(ProgramTest, NothingReadableIsStatusOneWithFileOffsetAndReason) {
  const std::string cut = folder_.Write("cut.json", "{\"schemaVersion\": 1, ");
  const Outcome run = Run("analyze " + cut);
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr(cut));
  EXPECT_THAT(run.err, HasSubstr("byte 21"));

  const Outcome text = Run("analyze " + folder_.Write("notes.txt", "hello"));
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.err, HasSubstr("not JSON"));
  EXPECT_EQ(Run("analyze " + folder_.At("missing")).status, 1);
}

TEST_F(ProgramTest, OneBadPathDoesNotSpoilTheOthers) {
  const Outcome run = Run("analyze " + folder_.At("missing") + " " + trace_);
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, HasSubstr("missing"));
  EXPECT_THAT(run.out, HasSubstr("sync-data-loading"));
}

TEST_F(ProgramTest, SuggestsTheNearestWord) {
  const auto error = [&](const std::string& words) {
    const Outcome run = Run(words);
    EXPECT_EQ(run.status, 2) << words;
    return run.err;
  };
  EXPECT_THAT(error("analyse x"), HasSubstr("did you mean 'analyze'?"));
  EXPECT_THAT(error("analyze --fromat json x"),
              HasSubstr("did you mean '--format'?"));
  EXPECT_THAT(error("analyze --verbos x"),
              HasSubstr("did you mean '--verbose'?"));
  EXPECT_THAT(error("--verbose analyze x"), HasSubstr("come after a command"));
  EXPECT_THAT(error("zzz"), Not(HasSubstr("did you mean")));
  EXPECT_THAT(error("analyze --zzzzzzzz x"), Not(HasSubstr("did you mean")));
}

TEST_F(ProgramTest, SaysWhatAnOptionWants) {
  EXPECT_THAT(Run("analyze").err, HasSubstr("analyze PATH..."));
  EXPECT_THAT(Run("analyze x --format xml").err,
              HasSubstr("text, json, markdown or html"));
  EXPECT_THAT(Run("analyze x --cycle -1").err, HasSubstr("of at least 0"));
  EXPECT_THAT(Run("analyze x --cycle=two").err, HasSubstr("'two'"));
  EXPECT_THAT(Run("analyze x --output").err, HasSubstr("needs a value"));
  EXPECT_THAT(Run("analyze x --verbose=1").err, HasSubstr("no value"));
}

TEST_F(ProgramTest, WrongUsageIsStatusTwo) {
  for (const char* words :
       {"", "frobnicate", "analyze", "analyze --frobnicate x",
        "analyze --format xml x", "--frobnicate"}) {
    const Outcome run = Run(words);
    EXPECT_EQ(run.status, 2) << words;
    EXPECT_EQ(run.out, "") << words;
    EXPECT_THAT(run.err, HasSubstr("stepscope: ")) << words;
  }
  EXPECT_THAT(Run(trace_).err, HasSubstr("stepscope analyze " + trace_));
}

TEST_F(ProgramTest, HelpAndVersionGoToStandardOutput) {
  for (const char* words :
       {"--help", "analyze --help", "help", "compare --help", "rules --help",
        "explain --help", "what-if --help", "doctor --help", "help analyze",
        "help run", "list --help"}) {
    const Outcome run = Run(words);
    EXPECT_EQ(run.status, 0) << words;
    EXPECT_THAT(run.out, HasSubstr("Usage: stepscope ")) << words;
    EXPECT_EQ(run.err, "") << words;
  }
  EXPECT_THAT(Run("--help").out, HasSubstr("analyze PATH..."));
  EXPECT_THAT(Run("--version").out,
              testing::MatchesRegex("stepscope [0-9.]+\n"));
  EXPECT_EQ(Run("-V").out, Run("--version").out);
  EXPECT_EQ(Run("help top").out, Run("top --help").out);
  EXPECT_THAT(Run("help topp").err, HasSubstr("did you mean 'top'?"));
}

}  // namespace
}  // namespace stepscope::program_test
