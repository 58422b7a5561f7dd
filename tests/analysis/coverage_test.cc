#include "engine/coverage.h"

#include <gtest/gtest.h>
#include <stepscope/analysis.h>

#include <set>
#include <string>

#include "context/rule.h"
#include "engine/plan.h"
#include "engine/rule_families.h"
#include "support/explained.h"
#include "words/conclusion.h"

namespace stepscope::coverage_test {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Finding Saving(const std::string& id, double ms,
               GainKind kind = GainKind::kPredicted) {
  Finding finding;
  finding.id = id;
  finding.status = FindingStatus::kWarning;
  finding.severity = FindingSeverity::kMedium;
  finding.gain_kind = kind;
  finding.gain.expected_ms = ms;
  return finding;
}

// A step that computes for one half and loads for one third.
Report HalfComputing() {
  Report report;
  report.steps = {.count = 10, .steady = 10, .mean_ms = 100};
  report.time_split_ms = {
      {"compute", 50}, {"data", 36}, {"host_code", 10}, {"dispatch", 4}};
  report.path_split_ms = report.time_split_ms;
  report.critical_path = {{"data", "", 36},
                          {"compute", "aten::mm", 30},
                          {"compute", "aten::add", 18}};
  report.clean = {"fp64-compute", "launch-bound", "loader-bound"};
  return report;
}

const CauseAnswer* AnswerTo(const Report& report, const std::string& cause) {
  for (const CauseAnswer& answer : report.coverage) {
    if (answer.cause == cause) return &answer;
  }
  return nullptr;
}

// These rules save no time: they are about the recording, about memory, or
// about an obstacle to another rule's change.
TEST(CoverageTest, OnlyTheseRulesHaveNoCause) {
  std::set<std::string> about_none;
  for (std::span<const Rule> family : RuleFamilies()) {
    for (const Rule& rule : family) {
      if (CausesOf(rule.id).empty()) about_none.insert(rule.id);
    }
  }
  EXPECT_EQ(about_none,
            (std::set<std::string>{"capture-incomplete", "cuda-graph-obstacles",
                                   "fragmentation", "memory-headroom",
                                   "near-oom", "warmup-in-window"}));
  EXPECT_TRUE(CausesOf("no-such-rule").empty());
}

// For example, contended-cores: it is not a change of the program, but the
// report shows the most that it can gain.
TEST(CoverageTest, AWarningThatGainsAnswersItsCause) {
  Report report = HalfComputing();
  report.time_split_ms["contended"] = 20;
  Finding warning = Saving("contended-cores", 22, GainKind::kBound);
  warning.severity = FindingSeverity::kNote;
  report.findings.push_back(warning);
  ExplainCauses(report);
  ASSERT_NE(AnswerTo(report, "contended"), nullptr);
  EXPECT_EQ(AnswerTo(report, "contended")->why, "");
}

TEST(CoverageTest, ARuleAboutALargeCauseIsNotClean) {
  Report report = HalfComputing();
  EXPECT_NE(Unexplained(report), "");
  ExplainCauses(report);
  EXPECT_EQ(Unexplained(report), "");
  ASSERT_EQ(report.coverage.size(), 3u);  // dispatch is too small
  EXPECT_EQ(report.coverage[0].cause, "compute");
  EXPECT_EQ(report.coverage[1].cause, "data");
  EXPECT_EQ(report.coverage[1].why,
            "the rule loader-bound found nothing to change");
  EXPECT_EQ(report.coverage[1].looked,
            std::vector<std::string>{"loader-bound"});
  // The main cause of launch-bound is dispatch, which is small here.
  EXPECT_EQ(report.clean, std::vector<std::string>{"launch-bound"});
  EXPECT_EQ(AnswerTo(report, "host_code")->looked,
            std::vector<std::string>{"launch-bound"});
}

TEST(CoverageTest, NamesWhatTakesLongest) {
  Report report = HalfComputing();
  ExplainCauses(report);
  EXPECT_EQ(AnswerTo(report, "compute")->why,
            "mostly aten::mm 30.0, aten::add 18.0 ms; the rule fp64-compute "
            "found nothing to change");
}

// A short time on the critical path must not stand for all of the GPU's time.
TEST(CoverageTest, NamesTheOpsThatTakeTheGpuLongest) {
  Report report = HalfComputing();
  report.has_gpu = true;
  report.critical_path = {{"data", "", 36}, {"compute", "aten::add", 3}};
  report.top_ops = {{.name = "record_param_comms",
                     .is_collective = true,
                     .gpu_self_ms_per_step = 30},
                    {.name = "aten::mm", .gpu_self_ms_per_step = 22},
                    {.name = "aten::add", .gpu_self_ms_per_step = 4}};
  ExplainCauses(report);
  EXPECT_TRUE(AnswerTo(report, "compute")
                  ->why.starts_with("mostly aten::mm 22.0, aten::add 4.00 ms"))
      << AnswerTo(report, "compute")->why;
  report.top_ops[1].gpu_self_ms_per_step = 20;
  ExplainCauses(report);
  EXPECT_TRUE(
      AnswerTo(report, "compute")
          ->why.starts_with("longest: aten::mm 20.0, aten::add 4.00 ms"))
      << AnswerTo(report, "compute")->why;
}

// The path has 30 ms of launches, although the GPU is idle for only 6 ms.
TEST(CoverageTest, SaysThatPartsAreOfTheCriticalPath) {
  Report report = HalfComputing();
  report.has_gpu = true;
  report.clean.clear();
  report.time_split_ms = {{"compute", 94}, {"dispatch", 6}};
  report.path_split_ms = {{"compute", 70}, {"dispatch", 30}};
  report.critical_path = {{"dispatch", "aten::mm", 14},
                          {"dispatch", "aten::add", 1}};
  ExplainCauses(report);
  EXPECT_TRUE(AnswerTo(report, "dispatch")
                  ->why.starts_with("on the critical path mostly aten::mm "
                                    "14.0, aten::add 1.00 ms"))
      << AnswerTo(report, "dispatch")->why;
  report.critical_path[0].ms_per_step = 13;
  ExplainCauses(report);
  EXPECT_TRUE(AnswerTo(report, "dispatch")
                  ->why.starts_with("longest on the critical path: aten::mm "
                                    "13.0, aten::add 1.00 ms"))
      << AnswerTo(report, "dispatch")->why;
}

TEST(CoverageTest, AFindingAnswersIfItMaySaveHalf) {
  Report report = HalfComputing();
  report.findings = {Saving("sync-data-loading", 18)};
  ExplainCauses(report);
  EXPECT_EQ(AnswerTo(report, "data")->why, "");
  EXPECT_EQ(AnswerTo(report, "data")->ids,
            std::vector<std::string>{"sync-data-loading"});
  // If a finding answers the cause, another rule about it may be clean.
  EXPECT_EQ(std::ranges::count(report.clean, "loader-bound"), 1);
  EXPECT_EQ(Unexplained(report), "");

  report.findings[0].gain.expected_ms = 17;
  ExplainCauses(report);
  EXPECT_EQ(AnswerTo(report, "data")->why,
            "sync-data-loading saves only part of it");
  EXPECT_EQ(Unexplained(report), "");

  for (Finding& finding : report.findings) finding.gain.expected_ms = 1;
  report.findings.push_back(Saving("loader-bound", 1));
  report.findings.push_back(Saving("loader-restarted", 1));
  ExplainCauses(report);
  EXPECT_EQ(AnswerTo(report, "data")->why,
            "sync-data-loading, loader-bound and loader-restarted save only "
            "part of it");
}

TEST(CoverageTest, ANoteIsNoAnswerButAReason) {
  Report report = HalfComputing();
  report.findings = {Saving("loader-bound", 30, GainKind::kBound)};
  report.findings[0].severity = FindingSeverity::kNote;
  report.findings[0].status = FindingStatus::kOk;
  report.clean.clear();
  ExplainCauses(report);
  EXPECT_EQ(AnswerTo(report, "data")->why,
            "loader-bound is only a note (at most 30.0 ms)");
}

TEST(CoverageTest, SaysWhatCouldNotLook) {
  Report report = HalfComputing();
  report.clean.clear();
  report.skipped = {
      {"loader-bound", "no waits were recorded; iterate over Batches"},
      {.id = "sync-data-loading",
       .why = "it is about another machine",
       .elsewhere = true}};
  ExplainCauses(report);
  EXPECT_EQ(AnswerTo(report, "data")->why,
            "loader-bound was skipped: no waits were recorded");
}

// What torch.profiler never records is no reason; sizes can be recorded.
TEST(CoverageTest, CountsTheRulesThatNeedSizes) {
  Report report = HalfComputing();
  report.clean.clear();
  report.skipped = {{"loader-bound", "no host-usage events were recorded"}};
  ExplainCauses(report);
  EXPECT_EQ(AnswerTo(report, "data")->why,
            "1 rule needs events that torch.profiler does not record");
  report.skipped = {{"loader-bound", "no kernel events were recorded"}};
  ExplainCauses(report);
  EXPECT_EQ(AnswerTo(report, "data")->why,
            "loader-bound was skipped: no kernel events were recorded");
  report.skipped = {{"loader-bound", "no op-shapes events were recorded"}};
  ExplainCauses(report);
  EXPECT_EQ(AnswerTo(report, "data")->why, "1 rule needs sizes of tensors");
}

// The GPU hides 30 ms of launches, but on the critical path they delay the next
// work.
TEST(CoverageTest, TheCriticalPathCountsFromATenth) {
  Report report = HalfComputing();
  report.path_split_ms = {{"compute", 70}, {"data", 20}, {"dispatch", 10}};
  ExplainCauses(report);
  ASSERT_NE(AnswerTo(report, "dispatch"), nullptr);
  EXPECT_DOUBLE_EQ(AnswerTo(report, "dispatch")->path_ms, 10);
  EXPECT_EQ(report.clean, std::vector<std::string>());
  bool told = false;
  for (const std::string& line : UnansweredInWords(report)) {
    told |= Contains(line, "4.00 ms (4 %; 10.0 ms of the critical path)");
  }
  EXPECT_TRUE(told);
}

TEST(CoverageTest, AnIncompleteRecordingIsOneReasonForAll) {
  Report report = HalfComputing();
  report.findings = {Saving("capture-incomplete", 0, GainKind::kNone)};
  report.findings[0].status = FindingStatus::kError;
  ExplainCauses(report);
  EXPECT_EQ(UnansweredInWords(report),
            std::vector<std::string>{
                "computing 50.0 ms (50 %), loading data 36.0 ms (36 %), code "
                "between ops 10.0 ms (10 %): the recording is incomplete"});
}

TEST(CoverageTest, NamesTheFindingAboutTheRecording) {
  Report report = HalfComputing();
  report.time_split_ms = {{"compute", 80}, {"profiler", 20}};
  report.findings = {Saving("observer-effect", 0, GainKind::kNone)};
  report.findings[0].severity = FindingSeverity::kNote;
  ExplainCauses(report);
  ASSERT_NE(AnswerTo(report, "profiler"), nullptr);
  EXPECT_TRUE(
      AnswerTo(report, "profiler")->why.ends_with("; see observer-effect"))
      << AnswerTo(report, "profiler")->why;
}

TEST(CoverageTest, WithoutStepsThereIsNothingPerStep) {
  Report report = HalfComputing();
  report.steps = {};
  ExplainCauses(report);
  EXPECT_TRUE(report.coverage.empty());
  EXPECT_EQ(Unexplained(report), "");
}

TEST(CoverageTest, OnlyAStepThatMostlyComputesIsHealthy) {
  Report report = HalfComputing();
  report.time_split_ms = {{"compute", 97}, {"host_code", 3}};
  report.path_split_ms = report.time_split_ms;
  ExplainCauses(report);
  EXPECT_EQ(VerdictInWords(report),
            "Healthy: 3 rules found nothing worth changing.");
  report = HalfComputing();
  report.time_split_ms = {{"compute", 80}, {"data", 20}};
  ExplainCauses(report);
  EXPECT_EQ(VerdictInWords(report), "3 rules found nothing worth changing.");
}

Report WithFindings(std::vector<Finding> findings) {
  Report report;
  report.steps = {.count = 10, .steady = 10, .mean_ms = 100};
  report.findings = std::move(findings);
  return report;
}

TEST(OrderPlanTest, ABoundStandsWhereItsGainRanksIt) {
  Report report = WithFindings({Saving("loader-bound", 60, GainKind::kBound),
                                Saving("small-batch", 20),
                                Saving("fp64-compute", 15, GainKind::kBound)});
  report.plan = {.ids = {"small-batch"},
                 .changes = {"batch x 2"},
                 .step_before_ms = 100,
                 .step_after_ms = 80};
  OrderPlan(report);
  EXPECT_EQ(report.plan.order,
            (std::vector<std::string>{"loader-bound", "small-batch",
                                      "fp64-compute"}));
  EXPECT_EQ(report.plan.at_most,
            (std::vector<std::string>{"loader-bound", "fp64-compute"}));
  EXPECT_EQ(PlanInWords(report),
            "Start with 1 (loader-bound, at most 60.0 ms); the actual gain "
            "cannot be predicted, so measure it. Then 2 (batch x 2): "
            "predicted 100 to 80.0 ms per step, 1.2x, not counting the changes "
            "named before. Then try 3 (fp64-compute, at most 15.0 ms).");
}

TEST(OrderPlanTest, BoundsAloneAreAPlan) {
  Report report = WithFindings({Saving("loader-bound", 60, GainKind::kBound),
                                Saving("fp64-compute", 15, GainKind::kBound)});
  OrderPlan(report);
  EXPECT_EQ(PlanInWords(report),
            "Start with 1 (loader-bound, at most 60.0 ms) and 2 (fp64-compute, "
            "at most 15.0 ms); the actual gain cannot be predicted, so measure "
            "it.");
}

// For several ranks, no replay combines the changes.
TEST(OrderPlanTest, PredictionsThatAreNotCombinedStandOnTheirOwn) {
  Report report = WithFindings({Saving("launch-bound", 30),
                                Saving("imbalanced-load", 25, GainKind::kBound),
                                Saving("unfused-optimizer", 2)});
  report.findings[2].severity = FindingSeverity::kLow;
  OrderPlan(report);
  EXPECT_EQ(report.plan.order,
            (std::vector<std::string>{"launch-bound", "imbalanced-load"}));
  EXPECT_EQ(PlanInWords(report),
            "Start with 1 (launch-bound, predicted 30.0 ms) and 2 "
            "(imbalanced-load, at most 25.0 ms); these gains do not add up: "
            "measure after each change.");
}

// A plan from the replay of one rank says nothing about a slow rank.
TEST(OrderPlanTest, ASlowRankStandsOnItsOwn) {
  Report report = WithFindings({Saving("straggler-rank", 37),
                                Saving("unfused-pointwise", 25),
                                Saving("unfused-optimizer", 2)});
  report.plan = {.ids = {"unfused-pointwise"},
                 .changes = {"elementwise ops fused"},
                 .step_before_ms = 200,
                 .step_after_ms = 175};
  OrderPlan(report);
  EXPECT_EQ(PlanInWords(report),
            "Start with 1 (straggler-rank, predicted 37.0 ms); these gains do "
            "not add up: measure after each change. Then 2 (elementwise ops "
            "fused): predicted 200 to 175 ms per step, 1.1x, not counting the "
            "changes named before. After that, 3 would add little, whatever it "
            "gains alone.");
}

TEST(OrderPlanTest, SmallBoundsAndNotesAreLeftOut) {
  Report report = WithFindings({Saving("loader-bound", 4, GainKind::kBound),
                                Saving("fp64-compute", 15, GainKind::kBound)});
  report.findings[0].severity = FindingSeverity::kLow;
  report.findings[1].status = FindingStatus::kOk;
  OrderPlan(report);
  EXPECT_TRUE(report.plan.order.empty());
  EXPECT_EQ(PlanInWords(report), "");
}

// A recording with source lines needs no second recording.
TEST(CoverageTest, OwnCodeNeedsNoStacksWhereTheyWereRecorded) {
  Report report = HalfComputing();
  ExplainCauses(report);
  EXPECT_TRUE(Contains(AnswerTo(report, "host_code")->why, "with_stack=True"))
      << AnswerTo(report, "host_code")->why;
  report = HalfComputing();
  report.lines.push_back({.name = "train.py:7 in main"});
  ExplainCauses(report);
  EXPECT_FALSE(Contains(AnswerTo(report, "host_code")->why, "with_stack"))
      << AnswerTo(report, "host_code")->why;
}

}  // namespace
}  // namespace stepscope::coverage_test
