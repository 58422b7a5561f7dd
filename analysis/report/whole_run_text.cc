#include "report/whole_run_text.h"

#include <stepscope/analysis.h>

#include <cmath>

#include "report/layout/text_page.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// With fewer steps, the usual step is not known well enough to call others
// slow, and the 5 and 95 % points are just the shortest and the longest step.
constexpr int64_t kMinStepsShown = 20;
// A stall below this share of the run is not worth a line. Recurring stalls are
// shown from a tenth of it, because a longer run has more of them.
constexpr double kMinFracShown = 0.01;
constexpr double kMinRecurringFracShown = 0.001;

std::string Seconds(double seconds) {
  return seconds < 1 ? Milliseconds(seconds * 1e3) : Number(seconds) + " s";
}

std::string StallLine(const RunStall& stall) {
  const std::string extra = Milliseconds(stall.extra_ms) + " longer";
  std::string text;
  switch (stall.rhythm) {
    case RunStall::Rhythm::kEvery:
      text = "every " + Ordinal(std::llround(stall.period_steps)) +
             " step (last: " + std::to_string(stall.last_step) + ") takes " +
             extra;
      break;
    case RunStall::Rhythm::kSteps:
      text =
          "one step in about " + Number(stall.period_steps) + " takes " + extra;
      break;
    case RunStall::Rhythm::kSeconds:
      text =
          "one step about every " + Seconds(stall.period_s) + " takes " + extra;
      break;
    case RunStall::Rhythm::kIrregular:
      text = "other slow steps, in no regular rhythm, take " + extra;
      break;
  }
  text += ": " + (stall.count == 1 ? "once" : Count(stall.count, "time")) +
          ", " + Percent(stall.frac) + " of the run";
  if (!stall.cause.empty()) {
    text += "; step " + std::to_string(stall.cause_step) +
            " was recorded: " + stall.cause;
  }
  return text;
}

const char* RhythmName(RunStall::Rhythm rhythm) {
  switch (rhythm) {
    case RunStall::Rhythm::kEvery:
      return "every";
    case RunStall::Rhythm::kSteps:
      return "steps";
    case RunStall::Rhythm::kSeconds:
      return "seconds";
    case RunStall::Rhythm::kIrregular:
      break;
  }
  return "irregular";
}

}  // namespace

std::vector<std::string> WholeRunLines(const WholeRun& run) {
  std::vector<std::string> lines;
  if (run.steps < kMinStepsShown) return lines;
  lines.push_back(
      "whole run: " + Count(run.steps, "step") + " timed in " +
      Seconds(run.seconds) + "; usual step " + Milliseconds(run.median_ms) +
      " without the profiler (5 to 95 %: " + Number(run.p5_ms) + " to " +
      Milliseconds(run.p95_ms) + "), longest " + Milliseconds(run.max_ms) +
      " (step " + std::to_string(run.max_step) + ")");
  for (const RunStall& stall : run.stalls) {
    const bool recurs = stall.rhythm != RunStall::Rhythm::kIrregular;
    if (stall.frac < (recurs ? kMinRecurringFracShown : kMinFracShown))
      continue;
    lines.push_back("  " + StallLine(stall));
  }
  return lines;
}

std::string StatusText(const WholeRun& run, int64_t steps) {
  if (run.steps < kMinStepsShown) return "";
  // All stalls, also those that are too rare for a line.
  double stalls = 0;
  for (const RunStall& stall : run.stalls) stalls += stall.frac;
  return Count(steps, "step") + ": usually " + Milliseconds(run.median_ms) +
         " (5 to 95 %: " + Number(run.p5_ms) + " to " +
         Milliseconds(run.p95_ms) + "), slow steps take " + Percent(stalls) +
         " of the time, longest " + Milliseconds(run.max_ms) + " (step " +
         std::to_string(run.max_step) + ")";
}

std::string ToText(const WholeRun& run, const TextOptions& options) {
  TextPage page(options);
  for (const std::string& line : WholeRunLines(run)) {
    // Keeps the indentation when a line is wrapped.
    const size_t indent = line.find_first_not_of(' ');
    page.Wrapped(std::string(indent, ' '), line.substr(indent));
  }
  return page.Take();
}

void WriteWholeRun(const WholeRun& run, JsonText& json) {
  json.Key("whole_run");
  json.Open('{');
  json.Field("steps", run.steps);
  json.Field("length_ms", run.seconds * 1e3);
  json.Field("median_ms", run.median_ms);
  json.Field("p5_ms", run.p5_ms);
  json.Field("p95_ms", run.p95_ms);
  json.Field("max_ms", run.max_ms);
  json.Field("max_step", run.max_step);
  json.Key("stalls");
  json.Open('[');
  for (const RunStall& stall : run.stalls) {
    json.Open('{');
    json.Field("rhythm", RhythmName(stall.rhythm));
    json.Field("count", stall.count);
    json.Field("first_step", stall.first_step);
    json.Field("last_step", stall.last_step);
    json.Field("period_steps", stall.period_steps);
    json.Field("period_ms", stall.period_s * 1e3);
    json.Field("extra_ms", stall.extra_ms);
    json.Field("run_frac", stall.frac);
    json.Field("cause", stall.cause);
    json.Field("cause_step", stall.cause_step);
    json.Close('}');
  }
  json.Close(']');
  json.Close('}');
}

}  // namespace stepscope
