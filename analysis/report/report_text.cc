// A Report for a terminal.
#include <stepscope/analysis.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/critical_path_text.h"
#include "report/header_text.h"
#include "report/ranks_text.h"
#include "report/step_text.h"
#include "report/text_page.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kTopOpsShown = 5;

// Red for what matters most, yellow for what is worth a look.
const char* ColorOf(const Finding& finding) {
  if (finding.status == FindingStatus::kError ||
      finding.severity >= FindingSeverity::kHigh) {
    return "1;31";
  }
  return finding.severity >= FindingSeverity::kMedium ||
                 finding.status == FindingStatus::kWarning
             ? "1;33"
             : "1";
}

void PrintFinding(const Report& report, const Finding& finding,
                  const std::string& mark, const TextOptions& options,
                  TextPage& page) {
  const bool about_recording = finding.severity == FindingSeverity::kNote &&
                               finding.status != FindingStatus::kOk;
  std::string line = mark + " " + page.Paint(finding.id, ColorOf(finding));
  line += std::string("  ") +
          (about_recording ? StatusName(finding.status)
                           : SeverityName(finding.severity)) +
          ", " + ConfidenceName(finding.confidence);
  page.Line(line);
  const std::string gain = GainInWords(report, finding);
  if (!gain.empty()) page.Line("   " + page.Paint(gain, "1"));
  page.Wrapped("   ", finding.evidence);
  page.Wrapped("   at       ", finding.where);
  if (finding.fix_cpp == finding.fix_python) {
    page.Wrapped("   fix      ", finding.fix_cpp);
  } else {
    page.Wrapped("   C++      ", finding.fix_cpp);
    page.Wrapped("   Python   ", finding.fix_python);
  }
  if (!options.verbose) return;
  page.Wrapped("   assumes  ", finding.assumption);
  page.Wrapped("   wrong if ", finding.wrong_if);
  page.Wrapped("   see      ", finding.reference);
  for (const Example& example : finding.examples) {
    page.Wrapped(
        "   e.g.     ",
        (example.step >= 0 ? "step " + std::to_string(example.step) + ": "
                           : std::string()) +
            Milliseconds((example.end_ns - example.begin_ns) * 1e-6) + " in " +
            example.what);
  }
}

// Findings, then the verdict or the plan, then notes.
void PrintFindings(const Report& report, const TextOptions& options,
                   TextPage& page) {
  int64_t notes = 0;
  bool advice = false;
  for (const Finding& finding : report.findings) {
    if (IsNote(finding)) {
      ++notes;
      continue;
    }
    page.Line();
    const int number = NumberOf(report, finding);
    advice |= number > 0;
    PrintFinding(report, finding,
                 number > 0 ? std::to_string(number) + " " : "! ", options,
                 page);
  }
  if (!advice && report.steps.count > 0) {
    page.Line();
    page.Wrapped("", VerdictInWords(report));
  }
  const std::string plan = PlanInWords(report);
  if (!plan.empty()) {
    page.Line();
    page.Wrapped("", plan);
  }
  if (options.verbose && notes > 0) {
    page.Line();
    page.Line("Notes (no gain here, or too small to report)");
    for (const Finding& finding : report.findings) {
      if (IsNote(finding)) PrintFinding(report, finding, "- ", options, page);
    }
  }
}

void PrintRanks(const Report& report, const TextOptions& options,
                TextPage& page) {
  const std::vector<std::string> lines = RankLines(report, options.verbose);
  if (!lines.empty()) page.Line();
  for (const std::string& line : lines) page.Line(line);
}

// Whole calls without decimals.
std::string CallsText(double calls) {
  const bool whole = std::abs(calls - std::round(calls)) < 0.05 || calls >= 100;
  return whole ? std::to_string(std::llround(calls)) : Number(calls);
}

void PrintTopOps(const Report& report, const TextOptions& options,
                 TextPage& page) {
  if (report.top_ops.empty()) return;
  const size_t count = options.verbose
                           ? report.top_ops.size()
                           : std::min(kTopOpsShown, report.top_ops.size());
  // Wide enough for the title line.
  size_t width = 24;
  for (size_t i = 0; i < count; ++i) {
    width =
        std::max(width, std::min<size_t>(Columns(report.top_ops[i].name), 56));
  }
  const bool per_step = report.steps.count > 0;
  page.Line();
  page.Line(
      PadRight(per_step ? "ops by self time, per step" : "ops by self time",
               width + 2) +
      PadLeft("self ms", 9) + PadLeft("total ms", 10) + PadLeft("calls", 8));
  for (size_t i = 0; i < count; ++i) {
    const TopOp& op = report.top_ops[i];
    page.Line("  " + PadRight(Clipped(op.name, width), width) +
              PadLeft(Number(op.self_ms_per_step), 9) +
              PadLeft(Number(op.total_ms_per_step), 10) +
              PadLeft(CallsText(op.calls_per_step), 8));
  }
}

void PrintCriticalPath(const Report& report, const TextOptions& options,
                       TextPage& page) {
  if (!options.verbose || report.critical_path.empty()) return;
  page.Line();
  for (const std::string& line : CriticalPathLines(report)) page.Line(line);
}

void PrintMemoryPeaks(const Report& report, const TextOptions& options,
                      TextPage& page) {
  if (!options.verbose || report.memory.empty()) return;
  page.Line();
  for (const std::string& peak : MemoryPeakLines(report.memory)) {
    page.Wrapped("memory  ", peak);
  }
}

// What the rules that fired nothing did, and where gains come from.
void PrintRuleStates(const Report& report, TextPage& page) {
  page.Line();
  std::string clean;
  for (const std::string& id : report.clean) {
    clean += (clean.empty() ? "" : ", ") + id;
  }
  page.Wrapped("nothing found: ", clean);
  for (const SkippedRule& rule : report.skipped) {
    page.Wrapped("skipped: ", rule.id + ": " + rule.why);
  }
  for (const std::string& superseded : report.superseded) {
    page.Wrapped("superseded: ", superseded);
  }
  if (report.replay.valid) {
    const bool part = report.replay.steps < report.steps.steady;
    page.Wrapped("", "Gains are predicted by replaying " +
                         (part ? Count(report.replay.steps, "consecutive step")
                               : std::string("the recorded steps")) +
                         ". Replayed without changes, the step is off by " +
                         Percent(std::abs(report.replay.no_edit_error)) + ".");
  } else if (!report.replay.why_not.empty()) {
    page.Wrapped("Gains are upper bounds, not predictions: ",
                 report.replay.why_not);
  }
}

// "24 rules skipped, 2 notes hidden (and why: stepscope analyze --verbose)".
// Most skipped rules are about GPUs or several ranks: no fault of the run.
std::string HiddenText(const Report& report) {
  const int64_t skipped = static_cast<int64_t>(report.skipped.size());
  const int64_t notes = std::ranges::count_if(report.findings, IsNote);
  std::string text;
  if (skipped > 0) text = Count(skipped, "rule") + " skipped";
  if (notes > 0) {
    text += (text.empty() ? "" : ", ") + Count(notes, "note") + " hidden";
  }
  return text.empty() ? "" : text + " (and why: stepscope analyze --verbose)";
}

void PrintFooter(const Report& report, const TextOptions& options,
                 TextPage& page) {
  if (options.verbose) PrintRuleStates(report, page);
  const std::string hidden = options.verbose ? "" : HiddenText(report);
  std::string paths;
  if (!options.details_path.empty()) paths = "details: " + options.details_path;
  if (!options.view_command.empty()) {
    paths += (paths.empty() ? "" : "   ") + ("view: " + options.view_command);
  }
  if (hidden.empty() && paths.empty()) return;
  page.Line();
  page.Wrapped("", hidden);
  if (!paths.empty()) page.Line(paths);
}

}  // namespace

std::string ToText(const Report& report, const TextOptions& options) {
  TextPage page(options);
  PrintTitle(report, page);
  for (const Loss& loss : report.losses) {
    std::string text = loss.detail.empty() ? loss.name : loss.detail;
    if (loss.severity == Severity::kNote && !options.verbose) continue;
    page.Wrapped(page.Paint("missing: ", ""), text);
  }
  PrintStepBreakdown(report, page);
  PrintFindings(report, options, page);
  PrintRanks(report, options, page);
  PrintTopOps(report, options, page);
  PrintCriticalPath(report, options, page);
  PrintMemoryPeaks(report, options, page);
  PrintFooter(report, options, page);
  return page.Take();
}

}  // namespace stepscope
