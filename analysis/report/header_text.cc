#include "report/header_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "report/step_text.h"
#include "words/conclusion.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// Causes and phases below this share of the step are summed as "other".
constexpr double kShownFrac = 0.005;
// Steps that vary less than this are not worth a line.
constexpr double kNoisyCov = 0.05;

// Twenty blocks, `frac` of them full.
std::string Bar(double frac) {
  const int full = std::clamp(static_cast<int>(std::lround(20 * frac)), 0, 20);
  std::string bar;
  for (int i = 0; i < 20; ++i) bar += i < full ? "▇" : "▁";
  return bar;
}

}  // namespace

void PrintTitle(const Report& report, TextPage& page) {
  const RunInfo& run = report.run;
  std::string line = page.Paint("stepscope", "1");
  std::vector<std::string> parts = {run.name.empty() ? run.source : run.name};
  if (report.steps.count > 0) {
    parts.push_back(Count(report.steps.count, "step"));
  }
  parts.push_back(MachineInWords(report));
  parts.push_back(RankInWords(run));
  if (!report.ranks.rows.empty()) {
    parts.push_back(
        Count(static_cast<int64_t>(report.ranks.rows.size()), "rank"));
  }
  for (const std::string& part : parts) {
    if (!part.empty()) line += "  " + Printable(part);
  }
  page.Line(line);
}

namespace {

using CauseMs = std::map<std::string, double>;

// "mean step 77.5 ms  GPU busy 64.8 ms (84 %) ... idle 12.8 ms", then the
// causes, largest first.
void PrintBreakdown(const std::string& what, double all_ms,
                    const CauseMs& split, bool has_gpu, TextPage& page) {
  const auto part = [&](const char* key) {
    const auto it = split.find(key);
    return it == split.end() ? 0.0 : it->second;
  };
  double busy = part("compute");
  if (has_gpu) busy += part("communication") + part("copy");
  const double all = std::max(all_ms, 1e-9);
  page.Line(what + " " + Milliseconds(all_ms) + "  " +
            (has_gpu ? "GPU busy " : "computing ") + Milliseconds(busy) + " (" +
            Percent(busy / all) + ") " + Bar(busy / all) + " " +
            (has_gpu ? "idle " : "other ") + Milliseconds(all_ms - busy));
  std::vector<std::pair<double, std::string>> parts;
  double small = 0;
  for (const auto& [key, ms] : split) {
    // The line above already says how long a CPU-only step computes.
    if (key == "compute" && !has_gpu) continue;
    if (ms < kShownFrac * all) {
      small += ms;
    } else {
      parts.push_back({-ms, CauseInWords(key, has_gpu)});
    }
  }
  std::ranges::sort(parts);
  std::string text;
  for (const auto& [ms, name] : parts) {
    text += (text.empty() ? "" : " · ") + name + " " + Number(-ms);
  }
  if (small > 0 && Number(small) != "0") {
    text += (text.empty() ? "other " : " · other ") + Number(small);
  }
  if (!text.empty()) page.Wrapped("  ", text + " ms");
}

}  // namespace

void PrintStepBreakdown(const Report& report, TextPage& page) {
  const StepStats& steps = report.steps;
  if (steps.count == 0) {
    if (!FindingSaysNoSteps(report)) page.Wrapped("", NoStepsInWords(report));
    if (report.recording_ms > 0 && !report.recording_split_ms.empty()) {
      PrintBreakdown("whole recording", report.recording_ms,
                     report.recording_split_ms, report.has_gpu, page);
      page.Wrapped("  ", UnprofiledText(report));
    }
    return;
  }
  PrintBreakdown(steps.count == 1 ? "step" : "mean step", steps.mean_ms,
                 report.time_split_ms, report.has_gpu, page);
  page.Wrapped("  ", UnprofiledText(report));
  if (std::ranges::count(report.findings, "contended-cores", &Finding::id)) {
    page.Wrapped("  ",
                 (report.time_split_ms.contains("contended")
                      ? std::string("the training thread has to wait for "
                                    "cores, which lengthens the times")
                      : std::string("ops take much longer than one core needs "
                                    "for them")) +
                     ", so no finding but contended-cores counts as proven");
  }
  const double mean = std::max(steps.mean_ms, 1e-9);
  std::string text;
  // Phases are in the order in which a step runs them, not sorted by time as
  // the causes are.
  for (const char* phase :
       {"data", "forward", "backward", "optimizer", "validate", "other"}) {
    const auto it = report.phases_ms.find(phase);
    if (it == report.phases_ms.end() || it->second < kShownFrac * mean) {
      continue;
    }
    text += (text.empty() ? "phases: " : " · ") + std::string(phase) + " " +
            Number(it->second);
  }
  if (!text.empty()) page.Wrapped("  ", text + " ms");
  if (steps.cov > kNoisyCov) {
    page.Wrapped("  ", "step time varies by " + Percent(steps.cov) +
                           " (standard deviation / mean); median " +
                           Milliseconds(steps.median_ms));
  }
  const std::string averaged = AveragedStepsText(report);
  if (!averaged.empty()) page.Wrapped("  ", averaged);
  const std::string stalls = StallsText(report);
  if (!stalls.empty()) page.Wrapped("  ", stalls);
  if (!steps.step_source.empty()) {
    page.Wrapped("  ", "no step marks in the trace: steps inferred from " +
                           steps.step_source);
  }
}

}  // namespace stepscope
