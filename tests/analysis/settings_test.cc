// Tests the settings that a report gives to programs, and how a comparison
// replays changed settings.
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/compare.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/edit_settings.h"
#include "support/cpu_loop.h"

namespace stepscope::settings_test {
namespace {

Loop OneThread() { return {.batch_ms = 37, .ops = Ops(40, 2.5), .cores = 8}; }

TEST(SettingsTest, AFindingAndThePlanSayWhatToSet) {
  const Report report = Analyze(Simulate(OneThread()).trace);
  const Finding* loading = nullptr;
  for (const Finding& finding : report.findings) {
    if (finding.id == "sync-data-loading") loading = &finding;
  }
  ASSERT_NE(loading, nullptr);
  EXPECT_EQ(loading->settings, (std::vector<Setting>{{"workers", int64_t{1}}}));
  EXPECT_FALSE(report.plan.settings.empty());
  EXPECT_NE(ToJson(report).find("\"workers\": 1"), std::string::npos);
}

TEST(SettingsTest, ABatchIsAbsoluteWhereItsSizeIsKnown) {
  EXPECT_EQ(SettingsOf({.batch = 2}, 32),
            (std::vector<Setting>{{"batch_size", int64_t{64}}}));
  EXPECT_EQ(SettingsOf({.batch = 2}, -1),
            (std::vector<Setting>{{"batch_factor", 2.0}}));
  EXPECT_TRUE(SettingsOf({}, 32).empty());
}

TEST(SettingsTest, ComparingReplaysWhatWasSetNotWhatWasAdvised) {
  Loop after = OneThread();
  after.threads = 2;  // the advice was eight
  const Comparison c =
      Compare(Simulate(OneThread()).trace, Simulate(after).trace);
  EXPECT_EQ(c.changed_settings,
            (std::vector<std::string>{"2 intra-op threads"}));
  EXPECT_EQ(c.predicted_kind, GainKind::kPredicted);
  EXPECT_NEAR(c.predicted.expected_ms, c.measured.expected_ms, 3);
  EXPECT_GT(c.measured.expected_ms, 40);
}

TEST(SettingsTest, AdviceThatOnlyFellSilentWasNotFollowed) {
  Loop before{.batch_ms = 37, .ops = Ops(40, 2.5), .cores = 2};
  Loop after = before;
  after.workers = 1;  // no core is left for more threads
  const Report first = Analyze(Simulate(before).trace);
  ASSERT_TRUE(std::ranges::any_of(first.findings, [](const Finding& finding) {
    return finding.id == "cores-idle";
  }));
  EXPECT_EQ(
      Compare(Simulate(before).trace, Simulate(after).trace).resolved_findings,
      (std::vector<std::string>{"sync-data-loading"}));
}

TEST(SettingsTest, ComparingPredictsALossToo) {
  Loop before = OneThread();
  before.threads = 8;
  Loop after = before;
  after.threads = 1;
  const Comparison c = Compare(Simulate(before).trace, Simulate(after).trace);
  EXPECT_LT(c.measured.expected_ms, -50);
  EXPECT_NEAR(c.predicted.expected_ms / c.measured.expected_ms, 1, 0.1);
  EXPECT_LT(c.predicted.low_ms, c.predicted.expected_ms);
  EXPECT_GT(c.predicted.high_ms, c.predicted.expected_ms);
  EXPECT_NE(ToText(c).find(" ms slower per step"), std::string::npos);
}

}  // namespace
}  // namespace stepscope::settings_test
