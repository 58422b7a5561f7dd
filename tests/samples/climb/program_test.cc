// The program as a user calls it, on the program that only pretends to train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <cmath>

#include "climb/options.h"
#include "measure/child.h"
#include "measure/run_times.h"
#include "samples/temporary_folder.h"

namespace climb {
namespace {

using ::testing::HasSubstr;

class ClimbProgramTest : public ::testing::Test {
 protected:
  absl::Status Run(std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        std::string("--resnet=") + FAKE_TRAINING,
        "--work",
        work_,
        "--json",
        json_,
        "--steps",
        "12",
        "--pairs",
        "3",
        "--profiles",
        "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return measure::RunChild({CLIMB, std::move(arguments)});
  }

  simdjson::dom::element Json() {
    EXPECT_FALSE(parser_.load(json_).get(root_)) << json_;
    return root_;
  }

  resnet::TemporaryFolder folder_;
  const std::string work_ = folder_.path() + "/work";
  const std::string json_ = folder_.path() + "/climb.json";
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

TEST_F(ClimbProgramTest, EndsAtTheBestOfTheSweep) {
  const absl::Status ran = Run({});
  ASSERT_TRUE(ran.ok()) << ran.message();
  simdjson::dom::element json = Json();
  simdjson::dom::array steps = json["steps"];
  ASSERT_EQ(steps.size(), 2u);
  for (simdjson::dom::element step : steps) {
    const double predicted = step["predicted_ms"];
    const double measured = step["measured_ms"];
    EXPECT_NEAR(predicted / measured, 1, 0.01);
    EXPECT_TRUE(bool(step["kept"]));
  }
  EXPECT_EQ(std::string_view(steps.at(0)["id"]), "cores-idle");
  const double rate = json["samples_per_s"];
  const double best = json["sweep_best_samples_per_s"];
  EXPECT_NEAR(rate, 64 / 0.138, 5);
  EXPECT_NEAR(best / rate, 1, 0.01);
  EXPECT_NEAR(double(json["start_samples_per_s"]), 32 / 0.116, 3);
  EXPECT_EQ(simdjson::dom::array(json["sweep"]).size(), 144u);
  EXPECT_TRUE(bool(json["healthy"]));
}

TEST_F(ClimbProgramTest, StopsWhenItsTimeIsOverAndGoesOnFromThere) {
  const absl::Status stopped = Run({"--no-sweep", "--limit", "1", "--steps",
                                    "8", "--start", "--slow-start 600"});
  EXPECT_EQ(stopped.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(stopped.message()),
              AllOf(HasSubstr("exit code 3"), HasSubstr("goes on from")));
  const absl::Status ended =
      Run({"--no-sweep", "--steps", "8", "--start", "--slow-start 600"});
  ASSERT_TRUE(ended.ok()) << ended.message();
  EXPECT_EQ(simdjson::dom::array(Json()["steps"]).size(), 2u);
}

TEST_F(ClimbProgramTest, BadHabitsAreMeasuredAndRemoved) {
  const absl::Status ran = Run({"--bad-habits", "--no-sweep"});
  ASSERT_TRUE(ran.ok()) << ran.message();
  simdjson::dom::element json = Json();
  for (simdjson::dom::element habit : json["habits"].get_array()) {
    const std::string_view name = habit["name"];
    const bool costs = name == "item" || name == "print";
    EXPECT_EQ(bool(habit["beyond_noise"]), costs) << name;
    EXPECT_EQ(int64_t(habit["removed_at_step"]) > 0, costs) << name;
  }
  EXPECT_EQ(simdjson::dom::array(json["complaints"]).size(), 0u);
  EXPECT_THAT(std::string(std::string_view(json["end"])),
              Not(HasSubstr("--print-tensor")));
}

TEST_F(ClimbProgramTest, AWrongFlagIsRefusedBeforeAnythingRuns) {
  EXPECT_THAT(std::string(Run({"--pair", "3"}).message()),
              AllOf(HasSubstr("exit code 2"), HasSubstr("--pairs?")));
  EXPECT_THAT(std::string(Run({"--start", "workers"}).message()),
              HasSubstr("exit code 2"));
}

TEST(ClimbOptionsTest, HelpIsEightyColumnsWide) {
  std::istringstream help(HelpText());
  for (std::string line; std::getline(help, line);) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST(ClimbOptionsTest, SideIsWhatNoFindingChanges) {
  const char* args[] = {"--side", "64", "--start", "--workers 1"};
  absl::StatusOr<Options> options = ParseOptions(args);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->always.Text(), "--side 64");
  EXPECT_EQ(options->start.Text(), "--workers 1");
}

}  // namespace
}  // namespace climb
