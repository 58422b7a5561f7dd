#include "measure/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "samples/temporary_folder.h"

namespace measure {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Settings Of(const char* text) { return *Settings::Parse(text); }

Workload Fake(const char* always = "") {
  return *Workload::Find(FAKE_TRAINING, Of(always));
}

TEST(WorkloadTest, TimesARunWithItsSettingsOverTheUsualOnes) {
  const Workload fake = Fake("--batch 16 --workers 1");
  absl::StatusOr<RunTimes> times =
      fake.Time(Of("--batch 64"), {.steps = 12, .warm_steps = 2}, "");
  ASSERT_TRUE(times.ok()) << times.status().message();
  EXPECT_EQ(times->step_ms.size(), 12u);
  EXPECT_EQ(times->warm_steps, 2);
  EXPECT_EQ(times->batch, 64);
  EXPECT_NEAR(times->MedianMs(), 148, 0.01);  // fake_training.cc: 20 + 2 x 64
}

TEST(WorkloadTest, AProfileLeavesItsAdviceAndNothingOlder) {
  resnet::TemporaryFolder folder;
  const std::string log_dir = folder.path() + "/log";
  std::filesystem::create_directories(log_dir + "/stepscope/a/c0/advice");
  std::ofstream(log_dir + "/stepscope/a/c0/advice/rank0.json") << "old";
  absl::StatusOr<Advice> advice = Fake().Profile(Settings(), log_dir, {});
  ASSERT_TRUE(advice.ok()) << advice.status().message();
  EXPECT_EQ(advice->step_ms, 116);
  ASSERT_FALSE(advice->Healthy());
  EXPECT_EQ(advice->findings[0].id, "cores-idle");
  EXPECT_THAT(advice->path, HasSubstr(log_dir));
}

TEST(WorkloadTest, AFailedRunShowsItsCommandAndItsWords) {
  absl::StatusOr<RunTimes> times = Fake().Time(Of("--fail --batch 7"), {}, "");
  EXPECT_EQ(times.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(times.status().message()),
              AllOf(HasSubstr("--batch=7"), HasSubstr("exit code 3"),
                    HasSubstr("no such weather")));
}

TEST(WorkloadTest, AdviceThatCannotBeReadIsNamed) {
  resnet::TemporaryFolder folder;
  absl::StatusOr<Advice> advice =
      Fake("--advise {").Profile(Settings(), folder.path() + "/log", {});
  EXPECT_EQ(advice.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(advice.status().message()),
              HasSubstr("advice/rank0.json"));
}

TEST(WorkloadTest, AProgramThatIsNotThereSaysHowToGetIt) {
  absl::StatusOr<Workload> none = Workload::Find("/nowhere/resnet", Settings());
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("--resnet"));
}

}  // namespace
}  // namespace measure
