#include "ladder/ascent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/rules.h>

#include <set>
#include <string>
#include <vector>

#include "resnet/options.h"
#include "samples/temporary_folder.h"

namespace ladder {
namespace {

using ::testing::Contains;
using ::testing::DoubleNear;
using ::testing::HasSubstr;

TEST(RungsTest, ResnetTakesTheFlagsOfEveryRung) {
  for (resnet::DeviceKind device :
       {resnet::DeviceKind::kCpu, resnet::DeviceKind::kCuda}) {
    measure::Settings settings;
    if (device == resnet::DeviceKind::kCuda) settings.Set("--device", "cuda");
    for (const Rung& rung : RungsFor(device)) {
      const measure::Settings before = settings;
      settings = settings.With(*measure::Settings::Parse(rung.flags));
      EXPECT_NE(settings, before) << rung.name << " changes nothing";
      const std::vector<std::string> words = settings.Arguments();
      std::vector<const char*> args;
      for (const std::string& word : words) args.push_back(word.c_str());
      EXPECT_EQ(resnet::ParseOptions(args).status().message(), "") << rung.name;
    }
  }
}

TEST(RungsTest, OnlyFindingsThatExistLeadToThem) {
  std::set<std::string> known;
  for (const stepscope::RuleText& rule : stepscope::RuleTexts()) {
    known.insert(rule.id);
  }
  for (resnet::DeviceKind device :
       {resnet::DeviceKind::kCpu, resnet::DeviceKind::kCuda}) {
    for (const Rung& rung : RungsFor(device)) {
      for (const std::string& id : rung.findings) {
        EXPECT_THAT(known, Contains(id));
      }
    }
  }
}

measure::Advice Report(const std::string& severity) {
  measure::Advice advice;
  advice.step_ms = 100;
  advice.findings = {{.id = "host-sync",
                      .severity = "high",
                      .gain_is = "predicted",
                      .gain_ms = 50},
                     {.id = "cores-idle",
                      .severity = severity,
                      .gain_is = "predicted",
                      .gain_ms = 20,
                      .gain_low_ms = 0,
                      .gain_high_ms = 50}};
  return advice;
}

Reason ReasonForThreads(measure::Advice report, const std::string& advised) {
  report.findings.back().settings = {{"intra_op_threads", advised}};
  return ReasonFor({"threads", "--threads 2", {"cores-idle"}}, report, {},
                   *measure::Settings::Parse("--threads 2"), 1);
}

TEST(ReasonTest, TheFindingWhoseFixTheRungIsWithItsGainAsAFactor) {
  const Reason reason = ReasonForThreads(Report("low"), "2");
  EXPECT_EQ(reason.finding, "cores-idle");
  EXPECT_EQ(reason.of_change, "");
  EXPECT_DOUBLE_EQ(reason.factor, 1.25);
  EXPECT_DOUBLE_EQ(reason.factor_low, 1);
  EXPECT_DOUBLE_EQ(reason.factor_high, 2);
}

TEST(ReasonTest, ANoteAsksForNothing) {
  EXPECT_EQ(ReasonForThreads(Report("note"), "2").finding, "");
  EXPECT_EQ(ReasonFor({"x", "--bf16", {}}, Report("low"), {},
                      *measure::Settings::Parse("--bf16"), 1)
                .finding,
            "");
}

TEST(ReasonTest, APromiseOfAnotherChangeIsSaidToBeOne) {
  EXPECT_EQ(ReasonForThreads(Report("low"), "4").of_change, "--threads 4");
}

class GoUpTest : public ::testing::Test {
 protected:
  Ladder GoUpThe(const std::vector<Rung>& rungs) {
    absl::StatusOr<measure::Bench> bench = measure::Bench::Open(
        *measure::Workload::Find(FAKE_TRAINING, {}),
        {.folder = folder_.path() + "/work", .window = {}, .say = {}});
    absl::StatusOr<Ladder> ladder = GoUp(*bench, rungs,
                                         {.pairs = 3,
                                          .length = {.steps = 12},
                                          .tell = [this](const Taken& taken) {
                                            told_.push_back(taken.rung.name);
                                          }});
    EXPECT_TRUE(ladder.ok()) << ladder.status().message();
    return *ladder;
  }

  resnet::TemporaryFolder folder_;
  std::vector<std::string> told_;
};

// The pretended step: 20 + 2 * batch ms of computing, halved by two threads,
// and 1 ms a sample of loading, hidden by a worker; channels last costs a tenth
// of the computing.
TEST_F(GoUpTest, EachRungIsMeasuredAgainstTheOneBelow) {
  const Ladder result = GoUpThe({{"baseline", "--batch 32", {}},
                                 {"threads", "--threads 2", {"cores-idle"}},
                                 {"batch", "--batch 64", {"small-batch"}}});
  const std::vector<Taken>& ladder = result.rungs;
  ASSERT_EQ(ladder.size(), 3u);
  EXPECT_EQ(told_, (std::vector<std::string>{"baseline", "threads", "batch"}));
  EXPECT_THAT(ladder[0].samples_per_s, DoubleNear(32 / 0.116, 2));
  EXPECT_THAT(ladder[1].samples_per_s, DoubleNear(32 / 0.074, 3));
  EXPECT_THAT(ladder[1].factor(), DoubleNear(116.0 / 74, 0.01));
  EXPECT_EQ(ladder[1].reason.finding, "cores-idle");
  EXPECT_THAT(ladder[1].reason.factor, DoubleNear(116.0 / 74, 0.01));
  EXPECT_THAT(ladder[2].factor(), DoubleNear(2 * 74.0 / 138, 0.01));
  EXPECT_EQ(ladder[2].settings.Text(), "--batch 64 --threads 2");
  EXPECT_LE(ladder[2].samples_per_s_low, ladder[2].samples_per_s);
  EXPECT_LE(ladder[2].samples_per_s, ladder[2].samples_per_s_high);
  EXPECT_EQ(result.top, 2u);
  EXPECT_THAT(result.whole.ratio(),
              DoubleNear(138.0 / 64 / (116.0 / 32), 0.01));
}

TEST_F(GoUpTest, ARungAtWhichTheProgramFailsIsLeftAgain) {
  const Ladder result = GoUpThe({{"baseline", "--batch 32", {}},
                                 {"rain", "--fail", {}},
                                 {"threads", "--threads 2", {"cores-idle"}}});
  const std::vector<Taken>& ladder = result.rungs;
  ASSERT_EQ(ladder.size(), 3u);
  EXPECT_FALSE(ladder[1].kept);
  EXPECT_THAT(ladder[1].failed, HasSubstr("no such weather"));
  EXPECT_EQ(ladder[2].settings.Text(), "--batch 32 --threads 2");
  EXPECT_TRUE(ladder[2].kept);
  EXPECT_THAT(ladder[0].samples_per_s, DoubleNear(32 / 0.116, 2));
}

TEST_F(GoUpTest, ASlowerRungIsTakenBack) {
  const Ladder result =
      GoUpThe({{"baseline", "--batch 32", {}},
               {"layout", "--channels-last", {"layout-transpose"}},
               {"threads", "--threads 2", {"cores-idle"}}});
  const std::vector<Taken>& ladder = result.rungs;
  ASSERT_EQ(ladder.size(), 3u);
  EXPECT_FALSE(ladder[1].kept);
  EXPECT_EQ(ladder[1].reason.finding, "");
  EXPECT_LT(ladder[1].factor_interval().high, 1);
  EXPECT_TRUE(ladder[2].kept);
  EXPECT_EQ(ladder[2].settings.Text(), "--batch 32 --threads 2");
  EXPECT_EQ(ladder[2].reason.finding, "cores-idle");
  EXPECT_THAT(ladder[2].factor(), DoubleNear(116.0 / 74, 0.01));
}

}  // namespace
}  // namespace ladder
