// `--sweep` as a user calls it, in the program that only pretends to train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>

#include "measure/child.h"
#include "measure/run_times.h"
#include "samples/temporary_folder.h"

namespace cube {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class SweepProgramTest : public ::testing::Test {
 protected:
  absl::Status Run(std::vector<std::string> words) {
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
    return measure::RunChild({FAKE_TRAINING, std::move(arguments)});
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
  // The report of the baseline promises 116 to 74 ms for two threads.
  for (simdjson::dom::element effect : json["effects"].get_array()) {
    if (std::string_view(effect["change"]) != "--threads 2") continue;
    EXPECT_NEAR(double(effect["replay_ratio"]), 116.0 / 74, 0.001);
    EXPECT_NEAR(double(effect["at_baseline"]["ratio"]), 116.0 / 74, 0.001);
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

TEST_F(SweepProgramTest, ARunThatFailsEndsTheSweepWithItsWords) {
  EXPECT_THAT(
      std::string(Run({"--threads", "1,2", "--fail", "off,on"}).message()),
      AllOf(HasSubstr("exit code 1"), HasSubstr("no such weather")));
}

}  // namespace
}  // namespace cube
