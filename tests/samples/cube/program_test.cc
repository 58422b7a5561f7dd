// `--sweep` as a user calls it, in programs that only pretend to train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <filesystem>

#include "measure/child.h"
#include "measure/run_times.h"
#include "samples/temporary_folder.h"

namespace cube {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class SweepProgramTest : public ::testing::Test {
 protected:
  absl::Status Run(std::vector<std::string> words,
                   const char* program = FAKE_TRAINING) {
    std::vector<std::string> arguments = {"--sweep",
                                          "--sweep-work",
                                          folder_.path() + "/work",
                                          "--sweep-json",
                                          json_,
                                          "--sweep-csv",
                                          csv_,
                                          "--sweep-rounds",
                                          "3"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    return measure::RunChild({program, std::move(arguments)});
  }

  resnet::TemporaryFolder folder_;
  const std::string json_ = folder_.path() + "/cube.json";
  const std::string csv_ = folder_.path() + "/cube.csv";
};

// fake_training.cc: two threads are worth a lot, workers too, both together no
// more than the threads alone; the batch adds a little to everything.
TEST_F(SweepProgramTest, NamesThePairThatCancels) {
  const absl::Status ran =
      Run({"--threads", "1,2", "--workers", "0,1", "--batch", "32,64"});
  ASSERT_TRUE(ran.ok()) << ran.message();
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_FALSE(parser.load(json_).get(json));
  EXPECT_EQ(simdjson::dom::array(json["points"]).size(), 8u);
  bool seen = false;
  for (simdjson::dom::element pair : json["pairs"].get_array()) {
    if (std::string_view(pair["first"]) != "--threads 2" ||
        std::string_view(pair["second"]) != "--workers 1") {
      continue;
    }
    seen = true;
    EXPECT_TRUE(bool(pair["beyond_noise"]));
    EXPECT_THAT(std::string(std::string_view(pair["verdict"])),
                StartsWith("cancel"));
  }
  EXPECT_TRUE(seen);
  for (simdjson::dom::element effect : json["effects"].get_array()) {
    if (std::string_view(effect["change"]) != "--threads 2") continue;
    EXPECT_NEAR(double(effect["at_baseline"]["ratio"]), 116.0 / 74, 0.001);
  }
  // This program leaves advice, but no recording.
  EXPECT_THAT(std::string(std::string_view(json["replay_why_not"])),
              HasSubstr("trace"));
}

// simulated_loop.cc: replay of the recorded baseline against what the flags do.
TEST_F(SweepProgramTest, ReplayStandsBesideEveryPointAndPairThatItKnows) {
  const absl::Status ran =
      Run({"--threads", "1,2", "--workers", "0,1", "--pinned", "off,on"},
          SIMULATED_LOOP);
  ASSERT_TRUE(ran.ok()) << ran.message();
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_FALSE(parser.load(json_).get(json));
  EXPECT_EQ(std::string_view(json["replay_why_not"]), "");
  simdjson::dom::array unknown = json["replay_unknown"];
  ASSERT_EQ(unknown.size(), 1u);
  EXPECT_EQ(std::string_view(unknown.at(0)), "--pinned");
  const double baseline = json["points"].at(0)["samples_per_s"];
  for (simdjson::dom::element point : json["points"].get_array()) {
    const std::string flags{std::string_view(point["flags"])};
    double expected = 0;
    const bool known = !point["replay_ratio"].get(expected);
    EXPECT_EQ(known, flags.find("--pinned") == flags.npos) << flags;
    if (!known) continue;
    EXPECT_NEAR(expected / (double(point["samples_per_s"]) / baseline), 1, 0.15)
        << flags;
  }
  for (simdjson::dom::element pair : json["pairs"].get_array()) {
    simdjson::dom::object replay;
    const bool known = !pair["replay"].get(replay);
    EXPECT_EQ(known, std::string_view(pair["first"]) != "--pinned");
    if (!known) continue;
    EXPECT_NEAR(double(replay["both_over_product"]) /
                    double(pair["both_over_product"]["ratio"]),
                1, 0.15);
  }
}

TEST_F(SweepProgramTest, WritesALinePerRun) {
  ASSERT_TRUE(Run({"--threads", "1,2", "--channels-last", "off,on"}).ok());
  const std::string csv = *measure::ReadFile(csv_);
  EXPECT_THAT(csv, StartsWith("round,--channels-last,--threads,samples_per_s\n"
                              "1,off,1,"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 3 * 4);
}

TEST_F(SweepProgramTest, CombinationsThatAreRefusedAreLeftOutAndSaid) {
  ASSERT_TRUE(Run({"--threads", "1,2", "--workers", "0,1,7"}).ok());
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_FALSE(parser.load(json_).get(json));
  EXPECT_EQ(simdjson::dom::array(json["points"]).size(), 4u);
  simdjson::dom::array left_out = json["left_out"];
  ASSERT_EQ(left_out.size(), 2u);
  EXPECT_THAT(std::string(std::string_view(left_out.at(0)["why"])),
              HasSubstr("at most 4"));
}

TEST_F(SweepProgramTest, WordsThatMakeNoSenseEndWithCodeTwo) {
  EXPECT_THAT(std::string(Run({"--threads", "1"}).message()),
              HasSubstr("exit code 2"));
  EXPECT_THAT(std::string(Run({"--workers", "6,7"}).message()),
              AllOf(HasSubstr("exit code 2"), HasSubstr("at most 4")));
}

// All would be compared with another point than the one that is called so.
TEST_F(SweepProgramTest, WithoutItsBaselineNothingIsMeasured) {
  const absl::Status ran = Run({"--threads", "1,2", "--workers", "7,0,1"});
  EXPECT_THAT(
      std::string(ran.message()),
      AllOf(HasSubstr("exit code 2"),
            HasSubstr("the baseline, which has the first value of each flag, "
                      "is refused: --threads 1 --workers 7: --workers must be "
                      "at most 4; put values first that go together, such as "
                      "--threads 1 --workers 0")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/work/baseline"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/work/runs.jsonl"));
}

TEST_F(SweepProgramTest, ARunThatFailsEndsTheSweepWithItsWords) {
  EXPECT_THAT(
      std::string(Run({"--threads", "1,2", "--fail", "off,on"}).message()),
      AllOf(HasSubstr("exit code 1"), HasSubstr("no such weather")));
}

}  // namespace
}  // namespace cube
