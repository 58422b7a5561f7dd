#include "ladder/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ladder {
namespace {

using ::testing::HasSubstr;

TEST(ReplaceMarkedTest, OnlyWhatStandsBetweenTheMarksChanges) {
  const std::string text =
      "before\n<!-- a begin: by hand? no -->\nold\n<!-- a end -->\n"
      "<!-- b begin -->\nother\n<!-- b end -->\nafter\n";
  EXPECT_EQ(*ReplaceMarked(text, "a", "new\n"),
            "before\n<!-- a begin: by hand? no -->\nnew\n<!-- a end -->\n"
            "<!-- b begin -->\nother\n<!-- b end -->\nafter\n");
  EXPECT_EQ(*ReplaceMarked(*ReplaceMarked(text, "b", "x\n"), "b", "other\n"),
            text);
}

TEST(ReplaceMarkedTest, MarksThatAreMissingAreAdded) {
  EXPECT_EQ(*ReplaceMarked("text", "a", "new\n"),
            "text\n<!-- a begin -->\nnew\n<!-- a end -->\n");
  EXPECT_EQ(*ReplaceMarked("", "a", ""), "<!-- a begin -->\n<!-- a end -->\n");
}

TEST(ReplaceMarkedTest, DamagedMarksAreRefused) {
  for (const char* text :
       {"<!-- a begin -->\n", "<!-- a end -->\n",
        "<!-- a begin\n<!-- a end -->", "<!-- a end -->\n<!-- a begin -->\n"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ReplaceMarked(text, "a", "").status()))
        << text;
  }
}

measure::RunTimes RunOf(double step_ms) {
  return {.step_ms = {step_ms, step_ms}, .warm_steps = 0, .batch = 10};
}

Ladder Example() {
  Taken base{.rung = {"baseline", "--batch 10", {}},
             .settings = *measure::Settings::Parse("--batch 10")};
  base.facts = {.step_ms = 100,
                .split = {{"compute", 70}, {"data", 29}, {"sync", 1}},
                .machine = "Slow CPU"};
  base.samples_per_s = 100;
  Taken worker = base;
  worker.rung = {"a worker", "--workers 1", {"sync-data-loading"}};
  worker.settings.Set("--workers", "1");
  worker.reason = {.finding = "sync-data-loading",
                   .gain_is = "predicted",
                   .factor = 1.4,
                   .factor_low = 1.2,
                   .factor_high = 1.5};
  worker.facts.busy_frac = 0.25;
  worker.facts.tensor_core_frac = 0;
  worker.samples_per_s = 125;
  for (int i = 0; i < 3; ++i) {
    worker.measured.before.push_back(RunOf(100));
    worker.measured.after.push_back(RunOf(80));
  }
  Taken layout = worker;
  layout.rung = {"layout", "--channels-last", {}};
  layout.reason = {};
  layout.kept = false;
  layout.samples_per_s = 90;
  for (measure::RunTimes& run : layout.measured.after) run = RunOf(110);
  Ladder ladder{.rungs = {base, worker, layout}, .top = 1};
  ladder.whole = worker.measured;
  return ladder;
}

TEST(TableTest, ARowSaysWhatWasFoundForeseenAndMeasured) {
  const std::string text =
      ToMarkdown(Example(), {.date = "2026-01-02", .command = "ladder"});
  EXPECT_THAT(text, HasSubstr("2026-01-02, Slow CPU. `ladder`\n"));
  EXPECT_THAT(text, HasSubstr("| compute 70 %, data 29 % | - | - | - | - | - "
                              "|\n"));
  EXPECT_THAT(text, HasSubstr("| 1 | a worker | `--workers 1` | 125.0 "));
  EXPECT_THAT(text, HasSubstr("| 25.0 % | 0.0 % | sync-data-loading | ×1.40 "
                              "(×1.20 to ×1.50) | ×1.25 (×1.25 to ×1.25) "
                              "|\n"));
}

TEST(TableTest, WhatWasTakenBackIsNotTheTop) {
  const std::string text =
      ToMarkdown(Example(), {.date = "d", .command = "c", .chart = "x.svg"});
  EXPECT_THAT(text, HasSubstr(", taken back |\n"));
  EXPECT_THAT(text,
              HasSubstr("The baseline and the top, run in turn: 100.0 and "
                        "125.0 samples/s, ×1.25 (×1.25 to ×1.25), at the "
                        "top with `--batch 10 --workers 1`."));
  EXPECT_THAT(text, HasSubstr("](x.svg)\n"));
}

TEST(TableTest, APromiseOfAnotherChangeNamesIt) {
  Ladder ladder = Example();
  ladder.rungs[1].reason.of_change = "--workers 2";
  EXPECT_THAT(ToMarkdown(ladder, {.date = "d", .command = "c"}),
              HasSubstr("(×1.20 to ×1.50), of `--workers 2` |"));
}

TEST(TableTest, WhatFailsIsSaidInTheProgramsWords) {
  Ladder ladder = Example();
  ladder.rungs[2].failed = "out of memory";
  const std::string text = ToMarkdown(ladder, {.date = "d", .command = "c"});
  EXPECT_THAT(text, HasSubstr("| fails |\n"));
  EXPECT_THAT(text, HasSubstr("Rung 2 fails:\n\n```\nout of memory\n```\n"));
}

TEST(TableTest, ABoundIsNoPrediction) {
  Ladder ladder = Example();
  ladder.rungs[1].reason.gain_is = "bound";
  EXPECT_THAT(ToMarkdown(ladder, {.date = "d", .command = "c"}),
              HasSubstr("| at most ×1.40 |"));
}

}  // namespace
}  // namespace ladder
