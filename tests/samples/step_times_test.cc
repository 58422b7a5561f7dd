#include "step_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <limits>

#include "temporary_folder.h"

namespace resnet::step_times_test {
namespace {

using ::testing::HasSubstr;

TEST(StepTimesTest, TheMedianLeavesTheWarmStepsOut) {
  StepTimes times{{900, 800, 10, 30, 20}, 2, 32};
  EXPECT_EQ(times.MedianMs(), 20);
  EXPECT_EQ(times.SamplesPerSecond(), 1600);
}

TEST(StepTimesTest, TwoInTheMiddleAreAveraged) {
  EXPECT_EQ((StepTimes{{10, 40, 20, 30}, 0, 1}).MedianMs(), 25);
}

TEST(StepTimesTest, WarmStepsCountWhereThereAreNoOthers) {
  EXPECT_EQ((StepTimes{{10, 30}, 2, 1}).MedianMs(), 20);
  EXPECT_EQ((StepTimes{{10, 30}, 1, 1}).MedianMs(), 30);
}

TEST(StepTimesTest, NoStepsGiveNoFigures) {
  StepTimes times{{}, 3, 32};
  EXPECT_EQ(times.MedianMs(), 0);
  EXPECT_EQ(times.SamplesPerSecond(), 0);
  EXPECT_EQ(
      times.ToJson(),
      "{\"step_ms\": [], \"warm_steps\": 3, \"batch\": 32, "
      "\"median_ms\": 0.000, \"samples_per_s\": 0.000, \"loss\": null}\n");
}

TEST(StepTimesTest, ALossThatIsNoNumberIsNull) {
  StepTimes times{{1}, 0, 1, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_THAT(times.ToJson(), HasSubstr("\"loss\": null"));
}

TEST(StepTimesTest, TheFileHoldsTheJson) {
  TemporaryFolder folder;
  StepTimes times{{1.5, 2.25}, 1, 4, 0.5};
  std::string path = folder.path() + "/times.json";
  ASSERT_TRUE(WriteJson(times, path).ok());
  std::ifstream file(path);
  EXPECT_EQ(
      std::string(std::istreambuf_iterator<char>(file), {}),
      "{\"step_ms\": [1.500, 2.250], \"warm_steps\": 1, \"batch\": 4, "
      "\"median_ms\": 2.250, \"samples_per_s\": 1777.778, \"loss\": 0.500}\n");
}

TEST(StepTimesTest, AFileThatCannotBeWrittenIsNamed) {
  TemporaryFolder folder;
  absl::Status status = WriteJson({}, folder.path() + "/none/times.json");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(folder.path() + "/none/times.json: No such file"));
}

}  // namespace
}  // namespace resnet::step_times_test
