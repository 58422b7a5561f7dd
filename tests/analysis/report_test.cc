#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/analysis.h>

#include <limits>
#include <string>

#include "support/cpu_loop.h"
#include "support/random_trace.h"
#include "support/trace_text.h"
#include "words/code.h"
#include "words/conclusion.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope::report_test {
namespace {

const Loop kLoop{.batch_ms = 40, .ops = Ops(40, 6)};

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(WordsTest, NumbersAreRoundedToTheirPrecision) {
  EXPECT_EQ(Number(147.6), "148");
  EXPECT_EQ(Number(41.27), "41.3");
  EXPECT_EQ(Number(3.14159), "3.14");
  EXPECT_EQ(Number(0.04), "0.04");
  EXPECT_EQ(Number(99.96), "100");
  EXPECT_EQ(Number(9.996), "10.0");
}

TEST(WordsTest, ThereIsNoNegativeZero) {
  EXPECT_EQ(Number(-0.001), "0");
  EXPECT_EQ(Number(-0.0), "0");
  EXPECT_EQ(Percent(-0.0001), "0 %");
}

TEST(WordsTest, OneIsSingular) {
  EXPECT_EQ(Count(1, "step"), "1 step");
  EXPECT_EQ(Count(0, "step"), "0 steps");
  EXPECT_EQ(Count(2, "launch", "launches"), "2 launches");
  EXPECT_EQ(FirstOf({7}), "7");
  EXPECT_EQ(FirstOf({1, 2, 3, 4}), "1, 2, 3, 4");
  EXPECT_EQ(FirstOf({1, 2, 3, 4, 5}), "1, 2, 3, 4, ...");
}

TEST(WordsTest, BytesHaveDecimalUnits) {
  EXPECT_EQ(Bytes(512), "512 bytes");
  EXPECT_EQ(Bytes(50e6), "50.0 MB");
  EXPECT_EQ(Bytes(1.25e9), "1.2 GB");
}

TEST(WordsTest, NamesDoNotBecomeSentences) {
  EXPECT_EQ(Capitalised("events were dropped"), "Events were dropped");
  EXPECT_EQ(Capitalised("torch.profiler lost them"),
            "torch.profiler lost them");
  EXPECT_EQ(Capitalised(""), "");
}

TEST(WordsTest, CodeIsToldFromSentencesThatNameIt) {
  for (const char* code :
       {"torch.compile(model, mode=\"reduce-overhead\")",
        "torch::data::DataLoaderOptions().workers(1).max_jobs(2)",
        "DataLoader(..., num_workers=1, pin_memory=True)",
        "x = torch.rand(n, device=\"cuda\"); model(x)",
        "with torch.no_grad(): model(x)"}) {
    EXPECT_TRUE(IsCode(code)) << code;
  }
  for (const char* prose :
       {"capture the step in an at::cuda::CUDAGraph (static shapes, no "
        "synchronisation inside)",
        "use torch.compile on the model", "torch.compile, or fewer ops",
        "raise max_buffer_bytes", "use a larger batch", "", "(x)"}) {
    EXPECT_FALSE(IsCode(prose)) << prose;
  }
}

TEST(WordsTest, APlaceFollowsItsTime) {
  EXPECT_EQ(PlaceInWords("aten::copy_"), "in aten::copy_");
  EXPECT_EQ(PlaceInWords("at train.py:12"), "at train.py:12");
  EXPECT_EQ(PlaceInWords("between a and b"), "between a and b");
}

TEST(TextReportTest, SaysWhatToDoFirst) {
  const std::string text = ToText(Analyze(Simulate(kLoop).trace), {});
  EXPECT_TRUE(Contains(text, "1  cores-idle")) << text;
  EXPECT_TRUE(Contains(text, "2  sync-data-loading")) << text;
  EXPECT_TRUE(Contains(text, "Start with 1 (")) << text;
  EXPECT_TRUE(Contains(text, "loading data 40.0")) << text;
  EXPECT_FALSE(Contains(text, "\x1b")) << text;
}

// Neither findings about the recording, which come first, nor notes have a
// number.
TEST(TextReportTest, ThePlanNamesFindingsByTheNumbersPrinted) {
  Report report;
  report.steps = {.count = 10, .steady = 10, .mean_ms = 10};
  report.findings.resize(4);
  report.findings[0].id = "observer-effect";
  report.findings[0].status = FindingStatus::kError;
  report.findings[1].id = "loader-bound";
  report.findings[2].id = "grad-in-validation";
  report.findings[3].id = "cores-idle";
  for (int i : {1, 3}) {
    report.findings[i].status = FindingStatus::kWarning;
    report.findings[i].severity = FindingSeverity::kHigh;
  }
  report.plan = {.ids = {"loader-bound", "cores-idle"},
                 .changes = {"8 workers", "2 intra-op threads"},
                 .step_before_ms = 10,
                 .step_after_ms = 2};
  const std::string text = ToText(report, {});
  EXPECT_TRUE(Contains(text, "!  observer-effect")) << text;
  EXPECT_TRUE(Contains(text, "1  loader-bound")) << text;
  EXPECT_TRUE(Contains(text, "2  cores-idle")) << text;
  EXPECT_TRUE(Contains(text, "Apply 1 and 2 together")) << text;
  const std::string page = ToMarkdown(report);
  EXPECT_TRUE(Contains(page, "\n\n**observer-effect** (error")) << page;
  EXPECT_TRUE(Contains(page, "1. **loader-bound**")) << page;
  EXPECT_TRUE(Contains(page, "2. **cores-idle**")) << page;
  EXPECT_TRUE(Contains(page, "Apply 1 and 2 together")) << page;
}

// A line without a number right after a numbered item would belong to the item.
TEST(MarkdownReportTest, SetsFindingsWithoutANumberApart) {
  Report report = Analyze(Simulate(kLoop).trace);
  report.findings.clear();
  report.findings.resize(3);
  report.findings[0].id = "loader-bound";
  report.findings[1].id = "cuda-graph-obstacles";
  report.findings[2].id = "cores-idle";
  for (Finding& finding : report.findings) {
    finding.status = FindingStatus::kWarning;
    finding.fix_cpp = finding.fix_python = "a fix";
  }
  for (int i : {0, 2}) {
    report.findings[i].severity = FindingSeverity::kHigh;
    report.findings[i].gain_kind = GainKind::kBound;
    report.findings[i].gain.expected_ms = 2;
  }
  const std::string page = ToMarkdown(report);
  EXPECT_TRUE(Contains(page, "\n\n**cuda-graph-obstacles**")) << page;
  EXPECT_TRUE(Contains(page, "- fix: a fix\n\n2. **cores-idle**")) << page;
}

TEST(TextReportTest, ColoursOnlyWhenAsked) {
  EXPECT_TRUE(Contains(ToText(Analyze(Simulate(kLoop).trace), {.color = true}),
                       "\x1b["));
}

TEST(TextReportTest, FitsAScreenAndItsWidth) {
  const std::string text = ToText(Analyze(Simulate(kLoop).trace),
                                  {.width = 80, .details_path = "a.json"});
  EXPECT_LE(std::ranges::count(text, '\n'), 40);
  size_t columns = 0;
  for (char c : text) {
    if (c == '\n') {
      columns = 0;
    } else if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) {
      ++columns;
      ASSERT_LE(columns, 80u) << text;
    }
  }
  EXPECT_TRUE(Contains(text, "details: a.json"));
}

TEST(TextReportTest, AHealthyRunSaysSo) {
  const std::string text =
      ToText(Analyze(Simulate({.ops = Ops(40, 5), .threads = 2}).trace), {});
  EXPECT_TRUE(Contains(text, "Healthy")) << text;
  EXPECT_FALSE(Contains(text, "Start with")) << text;
  EXPECT_FALSE(Contains(text, "Apply ")) << text;
}

// Where a recording lacks the number of cores, nothing may be wrong.
TEST(TextReportTest, AQuestionDoesNotHideThatNothingWasFound) {
  Report report;
  report.steps = {.count = 6, .steady = 6, .mean_ms = 300};
  report.time_split_ms = {{"compute", 290}};
  report.clean = {"zero-grad-kernels", "unfused-optimizer"};
  report.findings = {{.id = "cores-idle",
                      .status = FindingStatus::kWarning,
                      .severity = FindingSeverity::kLow,
                      .confidence = Confidence::kHint,
                      .gain_kind = GainKind::kBound,
                      .gain = {.expected_ms = 100, .high_ms = 100}}};
  const std::string verdict =
      "2 rules found nothing worth changing. One question is open "
      "(cores-idle).";
  EXPECT_TRUE(Contains(ToText(report, {}), verdict)) << ToText(report, {});
  EXPECT_TRUE(Contains(ToMarkdown(report), "2 rules found nothing"));
  // It is advice if other programs are known to use the cores.
  report.findings[0].settings = {{"intra_op_threads", int64_t{2}}};
  EXPECT_FALSE(Contains(ToText(report, {}), "found nothing worth changing"));
}

TEST(TextReportTest, NotesNameTheSmallestGainOfAFinding) {
  const Report report =
      Analyze(Simulate({.ops = Ops(40, 5), .threads = 2}).trace);
  // If all steps are equal, the limit is 1 % of their mean.
  EXPECT_NEAR(report.steps.smallest_gain_ms, report.steps.mean_ms / 100, 1e-6);
  Report with_note;
  with_note.steps = {.count = 6, .steady = 6, .mean_ms = 300};
  with_note.findings = {{.id = "zero-grad-kernels",
                         .status = FindingStatus::kOk,
                         .severity = FindingSeverity::kNote}};
  EXPECT_TRUE(
      Contains(ToText(with_note, {.verbose = true}),
               "\nNotes (no gain, or one too small or uncertain to report)\n"));
  with_note.steps.smallest_gain_ms = 3;
  EXPECT_TRUE(
      Contains(ToText(with_note, {.verbose = true}),
               "\nNotes (no gain, one below 3.00 ms, the smallest to report "
               "here, or one that is too uncertain)\n"));
}

TEST(TextReportTest, ARunTooNoisyToJudgeIsNotCalledHealthy) {
  Report report;
  report.steps = {.count = 6, .steady = 6, .mean_ms = 300, .cov = 0.2};
  report.time_split_ms = {{"compute", 200}, {"host_code", 100}};
  report.clean = {"sync-data-loading"};
  Finding note;
  note.id = "zero-grad-kernels";
  note.severity = FindingSeverity::kNote;
  note.status = FindingStatus::kOk;
  note.gain_kind = GainKind::kPredicted;
  note.gain = {.expected_ms = 18};
  report.findings = {note};
  EXPECT_TRUE(
      Contains(VerdictInWords(report), "No verdict: steps vary by 20 %"))
      << VerdictInWords(report);
  EXPECT_TRUE(
      Contains(VerdictInWords(report), "zero-grad-kernels (predicted 18.0 ms)"))
      << VerdictInWords(report);
  // Half of a bound counts. Steps without noise hide nothing.
  report.findings[0].gain_kind = GainKind::kBound;
  report.findings[0].gain.expected_ms = 17;
  EXPECT_EQ(VerdictInWords(report),
            "1 rule found nothing worth changing, but steps vary by 20 %: "
            "gains below 49.0 ms per step cannot be distinguished from noise.");
  report.findings[0].gain.expected_ms = 19;
  EXPECT_TRUE(Contains(VerdictInWords(report), "(at most 19.0 ms)"));
  report.steps.cov = 0.05;
  EXPECT_TRUE(Contains(VerdictInWords(report), "Healthy"));
}

TEST(TextReportTest, ListsAllRulesThatItCounts) {
  Report report;
  report.steps = {.count = 6, .steady = 6, .mean_ms = 100};
  report.time_split_ms = {{"compute", 80}, {"data", 20}};
  report.clean = {"host-sync"};
  report.coverage = {{.cause = "data",
                      .ms = 20,
                      .looked = {"loader-bound", "h2d-pageable"},
                      .why = "2 rules found nothing to change"}};
  report.skipped = {{.id = "near-oom", .why = "memory was not recorded"},
                    {.id = "cores-idle", .why = "not on a GPU"}};
  const std::string text = ToText(report, {.verbose = true});
  EXPECT_TRUE(Contains(
      text, "\n3 rules found nothing worth changing (2 were skipped, because "))
      << text;
  EXPECT_TRUE(Contains(
      text, "\nnothing found: h2d-pageable, host-sync, loader-bound\n"))
      << text;
}

TEST(TextReportTest, AGainNamesItsStepAndItsRange) {
  Report report;
  report.steps = {.count = 4, .steady = 4, .mean_ms = 10};
  Finding finding;
  finding.gain_kind = GainKind::kPredicted;
  finding.gain = {.expected_ms = 5, .low_ms = 4, .high_ms = 6};
  finding.speedup = 2;
  EXPECT_EQ(GainInWords(report, finding),
            "predicted gain 5.00 ms (roughly 4.00 to 6.00): 10.0 to 5.00 ms "
            "per step, 2.0x");
  finding.gain.pairs = 3;
  EXPECT_EQ(GainInWords(report, finding),
            "predicted gain 5.00 ms (likely 4.00 to 6.00): 10.0 to 5.00 ms per "
            "step, 2.0x");
  finding.gain_kind = GainKind::kBound;
  EXPECT_EQ(GainInWords(report, finding),
            "gain at most 5.00 ms per step (of 10.0 ms), likely at least 4.00 "
            "ms");
  finding.gain.pairs = 0;
  EXPECT_EQ(GainInWords(report, finding),
            "gain at most 5.00 ms per step (of 10.0 ms)");
  finding.baseline_ms = 20;
  EXPECT_EQ(GainInWords(report, finding),
            "gain at most 5.00 ms per step (of 20.0 ms, slow steps included)");
  finding.gain_kind = GainKind::kNone;
  EXPECT_EQ(GainInWords(report, finding), "");
}

// From 5 to 2.5 ms with four times the batch. Both times are per recorded batch
// size.
TEST(TextReportTest, APlanWithABatchSaysHowItIsCounted) {
  Report report;
  report.findings.resize(1);
  report.findings[0].id = "small-batch";
  report.findings[0].severity = FindingSeverity::kHigh;
  report.plan = {.ids = {"small-batch"},
                 .changes = {"batch x 4"},
                 .settings = {{"batch_size", int64_t{128}}},
                 .step_before_ms = 5,
                 .step_after_ms = 2.5};
  EXPECT_EQ(
      PlanInWords(report),
      "Start with 1 (batch x 4): predicted 5.00 to 2.50 ms per step, "
      "2.0x. Batch-size gains are normalised to the recorded batch size.");
  report.plan.settings = {{"workers", int64_t{1}}};
  EXPECT_FALSE(Contains(PlanInWords(report), "normalised"));
}

TEST(TextReportTest, APlansRangeIsLeftOutWhereBothEndsReadTheSame) {
  Plan plan{.step_before_ms = 77.5,
            .step_after_ms = 66.2,
            .low_ms = 65,
            .high_ms = 67.3};
  EXPECT_EQ(PlanRangeInWords(plan), "");
  plan.low_ms = 60;
  EXPECT_EQ(PlanRangeInWords(plan), " (roughly 1.2x to 1.3x)");
  plan.pairs = 3;
  EXPECT_EQ(PlanRangeInWords(plan), " (likely 1.2x to 1.3x)");
  plan.low_ms = plan.high_ms = 0;
  EXPECT_EQ(PlanRangeInWords(plan), "");
}

// The replay of one of several ranks is not valid. The other ranks' gains are
// still predicted.
TEST(TextReportTest, SaysThatSomeRanksHaveUpperBounds) {
  Report report;
  report.steps = {.count = 1, .steady = 1, .mean_ms = 10};
  report.replay.why_not = "rank 3: too short";
  EXPECT_TRUE(Contains(ToText(report, {.verbose = true}),
                       "Gains are upper bounds, not predictions: rank 3"));
  report.ranks.rows.resize(4);
  EXPECT_TRUE(
      Contains(ToText(report, {.verbose = true}),
               "Some ranks have upper bounds, not predictions: rank 3"));
}

Report WithWarnings(int count) {
  Report report;
  report.steps = {.count = 10, .steady = 10, .mean_ms = 100};
  for (int i = 0; i < count; ++i) {
    Finding finding;
    finding.id = "finding-" + std::to_string(i + 1);
    finding.status = FindingStatus::kWarning;
    finding.severity = FindingSeverity::kMedium;
    finding.gain_kind = i % 2 ? GainKind::kBound : GainKind::kPredicted;
    finding.gain.expected_ms = 10 - i;
    finding.evidence = "Seen.";
    report.findings.push_back(finding);
  }
  return report;
}

TEST(TextReportTest, AScreenHasFiveFindingsAndTheNamesOfTheOthers) {
  const std::string five = ToText(WithWarnings(5), {});
  EXPECT_TRUE(Contains(five, "5  finding-5")) << five;
  EXPECT_FALSE(Contains(five, "further findings")) << five;
  const std::string seven = ToText(WithWarnings(7), {});
  EXPECT_FALSE(Contains(seven, "6  finding-6")) << seven;
  EXPECT_TRUE(Contains(seven,
                       "further findings: 6 finding-6 (at most 5.00 ms), "
                       "7 finding-7 (predicted 4.00 ms)"))
      << seven;
  const std::string all = ToText(WithWarnings(7), {.verbose = true});
  EXPECT_TRUE(Contains(all, "6  finding-6")) << all;
  EXPECT_FALSE(Contains(all, "further findings")) << all;
}

TEST(TextReportTest, AMutedFindingIsSaidUnderItsOwner) {
  Report report = WithWarnings(1);
  report.findings[0].also = {"launch-bound, at most 3.00 ms by itself"};
  const std::string line = "launch-bound, at most 3.00 ms by itself";
  EXPECT_TRUE(Contains(ToText(report, {}), "   also     " + line));
  EXPECT_TRUE(Contains(ToMarkdown(report), "- also: " + line));
  EXPECT_TRUE(Contains(ToJson(report), line));
}

TEST(TextReportTest, WhatIsHeldBackIsOneLineBesideAdvice) {
  Report report = WithWarnings(1);
  report.steps.cov = 0.2;
  Finding note = report.findings[0];
  note.id = "zero-grad-kernels";
  note.severity = FindingSeverity::kNote;
  note.status = FindingStatus::kOk;
  report.findings.push_back(note);
  EXPECT_TRUE(Contains(ToText(report, {}),
                       "\n\nHeld back, because steps vary by 20 %: "
                       "zero-grad-kernels (predicted 10.0 ms)."))
      << ToText(report, {});
}

TEST(TextReportTest, OneStepIsNoMean) {
  Report report;
  report.steps = {.count = 1, .steady = 1, .mean_ms = 10};
  EXPECT_TRUE(Contains(ToText(report, {}), "\nstep 10.0 ms"))
      << ToText(report, {});
  EXPECT_TRUE(Contains(ToMarkdown(report), "1 step of 10.0 ms"));
  report.steps.count = 2;
  EXPECT_TRUE(Contains(ToText(report, {}), "\nmean step 10.0 ms"));
  EXPECT_TRUE(Contains(ToMarkdown(report), "2 steps, mean 10.0 ms"));
}

TEST(TextReportTest, LossesStandAtTheTop) {
  const Trace trace = TraceFromText(R"(
    step 0..1000000 thread=0
    loss severity=error count=12 detail="12 events were dropped" buffer-full
  )");
  const std::string text = ToText(Analyze(trace), {});
  EXPECT_LT(text.find("12 events were dropped"), text.find("\nstep 1.00 ms"))
      << text;
}

// Most skipped rules are about GPUs, and the run has none. This is not a
// failure.
TEST(TextReportTest, CountsSkippedRules) {
  Report report;
  report.steps = {.count = 4, .steady = 4, .mean_ms = 10};
  EXPECT_FALSE(Contains(ToText(report, {}), "skipped"));
  report.skipped = {{"tf32-off", "no GPU was recorded"},
                    {"h2d-pageable", "no GPU was recorded"},
                    {"gc-pause", "no range events were recorded"}};
  const std::string text = ToText(report, {.details_path = "a.json"});
  EXPECT_TRUE(
      text.ends_with("\n\n3 rules skipped; stepscope analyze --verbose shows "
                     "why\ndetails: a.json\n"))
      << text;
  const std::string verbose = ToText(report, {.verbose = true});
  EXPECT_FALSE(Contains(verbose, "3 rules skipped")) << verbose;
  EXPECT_TRUE(Contains(verbose, "skipped: tf32-off, h2d-pageable: no GPU"))
      << verbose;
}

// A report in which `count` rules could not look, because of `why`.
Report Without(int count, const std::string& why) {
  Report report;
  report.steps = {.count = 4, .steady = 4, .mean_ms = 10};
  for (int i = 0; i < count; ++i) {
    report.skipped.push_back({"rule-" + std::to_string(i), why});
  }
  return report;
}
constexpr const char* kNoShapes = "no op-shapes events were recorded";
constexpr const char* kRecordShapes = "record_shapes=True to let them look";

TEST(MissingSizesTest, TextAndMarkdownSayWhatToRecord) {
  const Report report = Without(12, kNoShapes);
  for (const std::string& text : {ToText(report, {}), ToMarkdown(report)}) {
    EXPECT_TRUE(Contains(text, "12 rules need: record with")) << text;
  }
}

TEST(MissingSizesTest, CountsBothReasons) {
  Report report = Without(9, kNoShapes);
  EXPECT_EQ(MissingSizesInWords(report), "");
  report.skipped.push_back(
      {"padding", "no op has the sizes of its inputs (record_shapes)"});
  EXPECT_TRUE(Contains(MissingSizesInWords(report), "10 rules"))
      << MissingSizesInWords(report);
}

TEST(MissingSizesTest, OtherReasonsAreNotAboutSizes) {
  const Report report = Without(12, "no GPU was recorded");
  for (const std::string& text : {ToText(report, {}), ToMarkdown(report)}) {
    EXPECT_FALSE(Contains(text, "sizes of tensors")) << text;
  }
}

// The rules' own words for what they miss must be those that are counted.
TEST(MissingSizesTest, ARecordingWithSizesIsNotAskedForThem) {
  const auto text_of = [](const std::string& inputs) {
    std::string rows;
    for (int i = 0; i < 4; ++i) {
      const std::string at = std::to_string(i) + "000000..";
      rows += "step " + at + std::to_string(i + 1) +
              "000000 thread=0 number=" + std::to_string(i) + "\nop " + at +
              std::to_string(i) + "900000 thread=0 " + inputs + "aten::mm\n";
    }
    return ToText(Analyze(TraceFromText(rows)), {.width = 1'000});
  };
  EXPECT_TRUE(Contains(text_of(""), kRecordShapes)) << text_of("");
  const std::string sized = text_of("inputs=(float[8,8],float[8,8]) ");
  EXPECT_FALSE(Contains(sized, kRecordShapes)) << sized;
}

TEST(TextReportTest, ATraceWithoutStepsIsNotGivenAny) {
  const std::string text =
      ToText(Analyze(TraceFromText("op 0..1000 thread=0 aten::mm\n")), {});
  EXPECT_TRUE(Contains(text, "The trace has no step marks")) << text;
  EXPECT_FALSE(Contains(text, "nan")) << text;
  EXPECT_FALSE(Contains(text, "Healthy")) << text;
}

TEST(TextReportTest, ADamagedRecordingIsNotCalledHealthy) {
  const Trace trace = TraceFromText(R"(
    step 0..1000000 thread=0
    op 0..900000 thread=0 aten::mm
    loss severity=error count=1 detail="the file ends too early" truncated-file
  )");
  const std::string text = ToText(Analyze(trace), {});
  EXPECT_FALSE(Contains(text, "Healthy")) << text;
  EXPECT_TRUE(Contains(text, "No verdict")) << text;
}

TEST(TextReportTest, ARankIsNamedOnlyWhereThereAreSeveral) {
  Report report;
  report.run.rank = 0;
  report.run.world_size = 1;
  EXPECT_FALSE(Contains(ToText(report, {}), "rank"));
  report.run.world_size = 8;
  EXPECT_TRUE(Contains(ToText(report, {}), "rank 0 of 8"));
}

TEST(TextReportTest, AnEmptyTraceIsNoError) {
  EXPECT_FALSE(ToText(Analyze(Trace()), {}).empty());
}

TEST(TextReportTest, NamesCannotReachTheTerminal) {
  const Trace trace = TraceFromText(
      "run \"evil\\u001b[31m\"\nop 0..1000 thread=0 \"aten::\\u001b[0m\"\n");
  EXPECT_FALSE(Contains(ToText(Analyze(trace), {.verbose = true}), "\x1b"));
}

TEST(JsonReportTest, HoldsTheSchema) {
  const Report report = Analyze(Simulate(kLoop).trace);
  const std::string text = ToJson(report);
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_EQ(parser.parse(text).get(json), simdjson::SUCCESS) << text;
  EXPECT_EQ(int64_t(json["version"]), 2);
  EXPECT_EQ(int64_t(json["steps"]["count"]), 4);
  EXPECT_DOUBLE_EQ(double(json["steps"]["mean_ms"]), report.steps.mean_ms);
  EXPECT_TRUE(bool(json["replay"]["valid"]));
  double sum = 0;
  for (auto field : simdjson::dom::object(json["time_split_ms"])) {
    sum += double(field.value);
  }
  EXPECT_NEAR(sum, report.steps.mean_ms, 1e-6);
  simdjson::dom::element first = json["findings"].at(0);
  EXPECT_EQ(std::string_view(first["id"]), "cores-idle");
  EXPECT_EQ(std::string_view(first["status"]), "warning");
  EXPECT_EQ(std::string_view(first["gain_kind"]), "predicted");
  EXPECT_GT(double(first["gain_ms_per_step"]["expected"]), 0);
  EXPECT_FALSE(std::string_view(first["fix"]["cpp"]).empty());
  EXPECT_EQ(std::string_view(json["plan"]["ids"].at(0)), "cores-idle");
  EXPECT_TRUE(text.ends_with("}\n"));
}

// A gain refers to the mean steady step unless the rule names another step.
TEST(JsonReportTest, EveryGainHasItsBaseline) {
  Report report;
  report.steps = {.count = 4, .steady = 4, .mean_ms = 10};
  report.findings.resize(3);
  report.findings[0].gain_kind = GainKind::kPredicted;
  report.findings[1].gain_kind = GainKind::kBound;
  report.findings[1].baseline_ms = 12;
  const std::string text = ToJson(report);
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_EQ(parser.parse(text).get(json), simdjson::SUCCESS) << text;
  const simdjson::dom::element findings = json["findings"];
  const char* kinds[] = {"predicted", "bound", "none"};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::string_view(findings.at(i)["gain_kind"]), kinds[i]);
  }
  EXPECT_DOUBLE_EQ(double(findings.at(0)["baseline_ms"]), 10);
  EXPECT_DOUBLE_EQ(double(findings.at(1)["baseline_ms"]), 12);
  EXPECT_TRUE(findings.at(2)["baseline_ms"].is_null());
}

TEST(JsonReportTest, IsValidForAnyTrace) {
  simdjson::dom::parser parser;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Trace trace = RandomTrace({.seed = seed, .bad_utf8 = true});
    simdjson::dom::element json;
    EXPECT_EQ(parser.parse(ToJson(Analyze(trace))).get(json), simdjson::SUCCESS)
        << "seed " << seed;
  }
  Report report;
  report.steps.mean_ms = std::numeric_limits<double>::quiet_NaN();
  report.time_split_ms["compute"] = -0.0;
  simdjson::dom::element json;
  ASSERT_EQ(parser.parse(ToJson(report)).get(json), simdjson::SUCCESS);
  EXPECT_TRUE(json["steps"]["mean_ms"].is_null());
  EXPECT_FALSE(Contains(ToJson(report), "-0"));
}

TEST(MarkdownReportTest, IsCalledByItsFileAndTellsTheLargestCausesFirst) {
  Report report;
  report.run.source = "runs/a/trace.json.gz";
  report.steps.count = 2;
  report.steps.mean_ms = 10;
  report.time_split_ms = {{"compute", 2}, {"copy", 0.001}, {"data", 8}};
  report.clean = {"host-sync", "small-batch"};
  report.skipped = {{.id = "loader-bound", .why = "no waits were recorded"}};
  const std::string text = ToMarkdown(report);
  EXPECT_TRUE(text.starts_with("### stepscope: trace.json.gz\n")) << text;
  EXPECT_LT(text.find("80 %"), text.find("20 %")) << text;
  EXPECT_EQ(text.find("| 0 |"), std::string::npos) << text;
  EXPECT_NE(text.find("2 rules found nothing worth changing (1 was skipped, "
                      "because it cannot judge this recording), but the step "
                      "computes for less than half of its time"),
            std::string::npos)
      << text;
}

TEST(MarkdownReportTest, EscapesNamesAndKeepsCode) {
  Report report = Analyze(Simulate(kLoop).trace);
  report.run.name = "a|b*c";
  const std::string text = ToMarkdown(report);
  EXPECT_TRUE(Contains(text, "a\\|b\\*c")) << text;
  EXPECT_TRUE(Contains(text, "`at::set_num_threads(2)")) << text;
  EXPECT_TRUE(Contains(text, "1. **cores-idle**")) << text;
}

TEST(MarkdownReportTest, ProseIsNoCode) {
  Report report = WithWarnings(1);
  report.findings[0].fix_cpp = "use torch::jit::freeze on the_model (once)";
  report.findings[0].fix_python = "torch.compile(model)";
  const std::string text = ToMarkdown(report);
  EXPECT_TRUE(
      Contains(text, "- C++: use `torch::jit::freeze` on `the_model` (once)\n"))
      << text;
  EXPECT_TRUE(Contains(text, "- Python: `torch.compile(model)`\n")) << text;
}

TEST(AnnotationsTest, EachFindingHasABannerAndItsExamples) {
  const std::vector<Annotation> rows =
      ToAnnotations(Analyze(Simulate(kLoop).trace));
  int banners = 0, slices = 0;
  for (const Annotation& row : rows) {
    if (row.row == "critical path") continue;
    EXPECT_EQ(row.row, "findings");
    (row.begin_ns == row.end_ns ? banners : slices) += 1;
  }
  EXPECT_EQ(banners, 2);
  EXPECT_EQ(slices, 3);
}

}  // namespace
}  // namespace stepscope::report_test
