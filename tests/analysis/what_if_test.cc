#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/compare.h>
#include <stepscope/what_if.h>

#include <cmath>
#include <string>
#include <utility>

#include "analysis/rules/rule_testing.h"
#include "support/cpu_loop.h"
#include "support/cpu_text.h"
#include "support/gpu_text.h"

namespace stepscope::what_if_test {
namespace {

Loop OneThread() { return {.batch_ms = 37, .ops = Ops(40, 2.5), .cores = 8}; }

Setting Workers(int64_t count) { return {"workers", count}; }
Setting Threads(int64_t count) { return {"intra_op_threads", count}; }

TEST(WhatIfTest, PredictsWhatCompareSaysAfterTheChange) {
  const Trace before = Simulate(OneThread()).trace;
  const WhatIf what_if(before);
  EXPECT_EQ(what_if.why_not(), "");
  for (const auto& [workers, threads] :
       {std::pair(1, 1), std::pair(0, 2), std::pair(2, 4)}) {
    Loop after = OneThread();
    after.workers = workers;
    after.threads = threads;
    const Comparison made = Compare(before, Simulate(after).trace);
    const std::optional<Gain> gain =
        what_if.Predict({.settings = {Workers(workers), Threads(threads)}});
    ASSERT_TRUE(gain.has_value());
    EXPECT_DOUBLE_EQ(gain->expected_ms, made.predicted.expected_ms);
    EXPECT_DOUBLE_EQ(gain->low_ms, made.predicted.low_ms);
    EXPECT_DOUBLE_EQ(gain->high_ms, made.predicted.high_ms);
    EXPECT_NEAR(gain->expected_ms / made.measured.expected_ms, 1, 0.1);
  }
}

// On two cores, each change helps alone, but not both together.
TEST(WhatIfTest, ChangesAreReplayedTogether) {
  const Trace trace = Simulate({.batch_ms = 40, .ops = Ops(40, 6)}).trace;
  const WhatIf what_if(trace);
  const double worker =
      what_if.Predict({.settings = {Workers(1)}})->expected_ms;
  const double thread =
      what_if.Predict({.settings = {Threads(2)}})->expected_ms;
  const double both =
      what_if.Predict({.settings = {Workers(1), Threads(2)}})->expected_ms;
  EXPECT_GT(worker, 20);
  EXPECT_GT(thread, worker);
  EXPECT_LT(both, 0.8 * (worker + thread));
}

TEST(WhatIfTest, ALossIsAGainBelowZero) {
  Loop loop = OneThread();
  loop.threads = 8;
  const Trace trace = Simulate(loop).trace;
  EXPECT_LT(WhatIf(trace).Predict({.settings = {Threads(1)}})->high_ms, 0);
}

TEST(WhatIfTest, AChangeAlreadyMadeGainsNothing) {
  const Trace trace = Simulate(OneThread()).trace;
  const WhatIf what_if(trace);
  for (const Change& change :
       {Change{}, Change{.settings = {Workers(0), Threads(1)}},
        Change{.settings = {{"set_to_none", true}}},
        Change{.settings = {{"validation_gradients", false}}}}) {
    const std::optional<Gain> gain = what_if.Predict(change);
    ASSERT_TRUE(gain.has_value());
    EXPECT_EQ(gain->expected_ms, 0);
    EXPECT_EQ(gain->high_ms, 0);
  }
}

TEST(WhatIfTest, FollowsAdviceLikeItsFinding) {
  const Trace trace = Simulate(OneThread()).trace;
  const WhatIf what_if(trace);
  for (const Finding& finding : Analyze(trace).findings) {
    if (finding.gain_kind != GainKind::kPredicted) continue;
    const std::optional<Gain> gain =
        what_if.Predict({.findings = {finding.id}});
    ASSERT_TRUE(gain.has_value()) << finding.id;
    EXPECT_DOUBLE_EQ(gain->expected_ms, finding.gain.expected_ms);
  }
  const Change both{.findings = {"sync-data-loading", "cores-idle"}};
  EXPECT_TRUE(what_if.Predict(both).has_value());
  // A setting is more exact.
  EXPECT_DOUBLE_EQ(
      what_if.Predict({.findings = {"cores-idle"}, .settings = {Threads(2)}})
          ->expected_ms,
      what_if.Predict({.settings = {Threads(2)}})->expected_ms);
}

TEST(WhatIfTest, AChangeThatReplayCannotExpressHasNoGain) {
  const Trace trace = Simulate(OneThread()).trace;
  const WhatIf what_if(trace);
  for (const Setting& setting :
       {Setting{"compiled", true}, Setting{"set_to_none", false},
        Setting{"workers", std::string("many")}, Setting{"workers", -1.0},
        Setting{"memory_format", std::string("contiguous")},
        Setting{"optimizer_step", std::string("fused")},  // no shapes
        Setting{"batch_size", int64_t{64}},  // the recorded size is unknown
        Setting{"", true}}) {
    EXPECT_FALSE(what_if.Predict({.settings = {setting}}).has_value())
        << setting.key;
    EXPECT_FALSE(
        what_if.Predict({.settings = {Threads(2), setting}}).has_value());
  }
  EXPECT_FALSE(what_if.Predict({.findings = {"host-sync"}}).has_value());
  EXPECT_TRUE(
      what_if.Predict({.settings = {{"batch_factor", 2.0}}}).has_value());
}

// Each setting must have the gain of the finding that advises it.
TEST(WhatIfTest, EverySettingOfAReportIsKnown) {
  const std::string tensor = "float[1000,1000]";
  CpuText text(
      "settings 1 step=0 anomaly_mode=1\n"
      "loader kind=in-process workers=0 batch_size=32 train\n");
  for (int i = 0; i < 3; ++i) {
    text.Begin();
    for (int k = 0; k < 20; ++k) text.Op("aten::zero_", 500);
    text.EndRange("kind=optimizer Optimizer.zero_grad#SGD.zero_grad");
    text.Op("aten::mm", 100'000, 5'000);
    for (int k = 0; k < 60; ++k) {
      text.Nested("kind=backward torch::autograd::AccumulateGrad", 2000,
                  "aten::isnan", 500);
    }
    text.Begin();
    for (int k = 0; k < 60; ++k) {
      text.Op("inputs=(" + tensor + ") aten::mul_", 200, 10);
      text.Op("inputs=(" + tensor + "," + tensor + ") aten::add_", 300, 10);
      text.Op("inputs=(" + tensor + "," + tensor + ") aten::add_", 300, 10);
    }
    text.EndRange("kind=phase optimizer");
    text.EndStep();
  }
  const Trace trace = text.Recorded();
  const WhatIf what_if(trace);
  ASSERT_EQ(what_if.why_not(), "");
  const Report report = Analyze(trace);
  for (const auto& [id, setting] :
       {std::pair("debug-api-on", Setting{"anomaly_mode", false}),
        std::pair("zero-grad-kernels", Setting{"set_to_none", true}),
        std::pair("unfused-optimizer",
                  Setting{"optimizer_step", std::string("fused")})}) {
    const Finding* finding = Find(report, id);
    ASSERT_NE(finding, nullptr) << id;
    const std::optional<Gain> gain = what_if.Predict({.settings = {setting}});
    ASSERT_TRUE(gain.has_value()) << id;
    EXPECT_GT(gain->expected_ms, 1) << id;
    EXPECT_DOUBLE_EQ(gain->expected_ms, finding->gain.expected_ms) << id;
  }
  const auto of = [&](Setting setting) {
    return what_if.Predict({.settings = {std::move(setting)}});
  };
  EXPECT_DOUBLE_EQ(of({"batch_size", int64_t{64}})->expected_ms,
                   of({"batch_factor", 2.0})->expected_ms);
  EXPECT_EQ(of({"batch_size", int64_t{32}})->high_ms, 0);
  // The gain of this setting cannot be known.
  const std::optional<Gain> layout =
      of({"memory_format", std::string("channels_last")});
  ASSERT_TRUE(layout.has_value());
  EXPECT_EQ(layout->expected_ms, 0);
  EXPECT_NEAR(layout->low_ms, -0.1 * report.steps.mean_ms, 1);
  EXPECT_NEAR(layout->high_ms, 0.1 * report.steps.mean_ms, 1);
}

TEST(WhatIfTest, ForBatchesOfWorkersOnlyTheWaitIsKnown) {
  Loop loop = OneThread();
  loop.workers = 2;
  const Trace trace = Simulate(loop).trace;
  const WhatIf what_if(trace);
  EXPECT_FALSE(what_if.Predict({.settings = {Workers(0)}}).has_value());
  EXPECT_TRUE(what_if.Predict({.settings = {Workers(1)}}).has_value());
}

// Every fourth step runs forward ops without a backward pass. If `zeroing`, all
// steps zero their gradients.
Trace Validating(bool zeroing) {
  CpuText text;
  int sequence = 0;
  for (int i = 0; i < 8; ++i) {
    if (zeroing) {
      text.Begin();
      for (int k = 0; k < 10; ++k) text.Op("aten::zero_", 100);
      text.EndRange("kind=optimizer Optimizer.zero_grad#SGD.zero_grad");
    }
    const int node = sequence++;
    text.Op("sequence=" + std::to_string(node) + " aten::mm", 2000);
    text.Op("kind=backward sequence=" + std::to_string(node) + " MmBackward0",
            2000);
    if (i % 4 == 3) {
      text.Begin();
      for (int k = 0; k < 4; ++k) {
        text.Op("sequence=" + std::to_string(sequence++) + " aten::mm", 2000);
      }
      text.EndRange("kind=phase validate");
    }
    text.EndStep();
  }
  return text.Recorded();
}

TEST(WhatIfTest, SaysNothingAboutStepsThatAreNotReplayed) {
  const Trace trace = Validating(true);
  const WhatIf what_if(trace);
  ASSERT_EQ(what_if.why_not(), "");
  const std::optional<Gain> zeros =
      what_if.Predict({.settings = {{"set_to_none", true}}});
  ASSERT_TRUE(zeros.has_value());
  EXPECT_NEAR(zeros->expected_ms, 1, 0.05);
  EXPECT_FALSE(what_if.Predict({.settings = {{"validation_gradients", false}}})
                   .has_value());
}

TEST(WhatIfTest, OnAGpuOnlyFindingsPredict) {
  const Trace trace = PageableUploads();
  const WhatIf what_if(trace);
  ASSERT_EQ(what_if.why_not(), "");
  const std::optional<Gain> gain =
      what_if.Predict({.findings = {"h2d-pageable"}});
  ASSERT_TRUE(gain.has_value());
  EXPECT_GT(gain->expected_ms, 1);
  for (const Setting& setting :
       {Threads(2), Workers(1), Setting{"set_to_none", true}}) {
    EXPECT_FALSE(what_if.Predict({.settings = {setting}}).has_value())
        << setting.key;
  }
}

TEST(WhatIfTest, SaysWhyReplayIsNotValid) {
  const Trace trace = TraceFromText("kernel 0..1000 k\n");
  const WhatIf what_if(trace);
  EXPECT_EQ(what_if.why_not(), "no steps were found");
  EXPECT_FALSE(what_if.Predict({}).has_value());
}

}  // namespace
}  // namespace stepscope::what_if_test
