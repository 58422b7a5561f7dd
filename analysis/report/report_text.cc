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
#include "report/layout/text_page.h"
#include "report/layout/text_table.h"
#include "report/place_text.h"
#include "report/ranks_text.h"
#include "report/step_text.h"
#include "report/whole_run_text.h"
#include "words/compiled_names.h"
#include "words/conclusion.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kTopOpsShown = 5;
constexpr size_t kOpNameColumns = 26;
// Further findings would not fit on a screen, so they are only named in one
// line.
constexpr size_t kFindingsShown = 5;

// Red for what matters most, yellow for what is worth looking at.
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
  // A finding about the recording has a status instead of a gain.
  const bool about_recording = !IsAdvice(finding) && !IsNote(finding);
  std::string line = mark + " " + page.Paint(finding.id, ColorOf(finding));
  line += std::string("  ") +
          (about_recording ? StatusName(finding.status)
                           : SeverityName(finding.severity)) +
          ", " + ConfidenceName(finding.confidence);
  page.Line(line);
  const std::string gain = GainInWords(report, finding);
  if (!gain.empty()) page.Line("   " + page.Paint(gain, "1"));
  page.Wrapped("   ", EvidenceBesideLosses(report, finding));
  page.Wrapped("   at       ", finding.where);
  // Many fixes are the same in both languages, and then need no language label.
  if (finding.fix_cpp == finding.fix_python) {
    page.Wrapped("   fix      ", finding.fix_cpp);
  } else {
    page.Wrapped("   C++      ", finding.fix_cpp);
    page.Wrapped("   Python   ", finding.fix_python);
  }
  page.Wrapped("   also     ", Listed(finding.also));
  if (!options.verbose) return;
  page.Wrapped("   assumes  ", finding.assumption);
  page.Wrapped("   wrong if ", finding.wrong_if);
  page.Wrapped("   see      ", finding.reference);
  for (const Example& example : finding.examples) {
    page.Wrapped(
        "   e.g.     ",
        (example.step >= 0 ? "step " + std::to_string(example.step) + ": "
                           : std::string()) +
            Milliseconds((example.end_ns - example.begin_ns) * 1e-6) + " " +
            PlaceInWords(example.what));
  }
}

// What is printed before a finding: its number, or a mark.
std::string MarkOf(const Report& report, const Finding& finding) {
  const int number = NumberOf(report, finding);
  return number > 0 ? std::to_string(number) + " " : "! ";
}

// Findings that a screen has no room for: "further findings: 6
// zero-grad-kernels (predicted 1.20 ms), ...".
void PrintFurther(const Report& report,
                  const std::vector<const Finding*>& further, TextPage& page) {
  std::vector<std::string> texts;
  for (const Finding* finding : further) {
    const std::string gain = GainInShort(*finding);
    texts.push_back(MarkOf(report, *finding) + finding->id +
                    (gain.empty() ? "" : " (" + gain + ")"));
  }
  if (texts.empty()) return;
  page.Line();
  page.Wrapped("further findings: ", Listed(texts));
}

// Prints the verdict or the plan, then what is held back, then the large causes
// without advice. An empty line separates them from the findings.
void PrintConclusion(const Report& report, bool advice, TextPage& page) {
  const bool judged = !advice && report.steps.mean_ms > 0;
  bool first = true;
  for (const std::string& text :
       {judged ? VerdictInWords(report) : "", PlanInWords(report),
        advice ? HeldBackInWords(report) : "", MissingSizesInWords(report)}) {
    if (text.empty()) continue;
    if (first) page.Line();
    first = false;
    page.Wrapped("", text);
  }
  const std::vector<std::string> unanswered = UnansweredInWords(report);
  if (unanswered.empty()) return;
  page.Line();
  page.Line("no change is offered for most of this time:");
  for (const std::string& line : unanswered) page.Wrapped("  ", line);
}

void PrintFindings(const Report& report, const TextOptions& options,
                   TextPage& page) {
  int64_t notes = 0;
  bool advice = false;
  size_t shown = 0;
  std::vector<const Finding*> further;
  for (const Finding& finding : report.findings) {
    if (IsNote(finding)) {
      ++notes;
      continue;
    }
    advice |= NumberOf(report, finding) > 0 && !IsQuestion(finding);
    if (shown == kFindingsShown && !options.verbose) {
      further.push_back(&finding);
      continue;
    }
    ++shown;
    page.Line();
    PrintFinding(report, finding, MarkOf(report, finding), options, page);
  }
  PrintFurther(report, further, page);
  PrintConclusion(report, advice, page);
  if (options.verbose && notes > 0) {
    page.Line();
    page.Line(report.steps.smallest_gain_ms > 0
                  ? "Notes (no gain, one below " +
                        Milliseconds(report.steps.smallest_gain_ms) +
                        ", the smallest to report here, or one that is too "
                        "uncertain)"
                  : "Notes (no gain, or one too small or uncertain to report)");
    for (const Finding& finding : report.findings) {
      if (IsNote(finding)) PrintFinding(report, finding, "- ", options, page);
    }
  }
}

void PrintLines(const std::vector<std::string>& lines, TextPage& page) {
  if (!lines.empty()) page.Line();
  for (const std::string& line : lines) page.Line(line);
}

void PrintTopOps(const Report& report, const TextOptions& options,
                 TextPage& page) {
  if (report.top_ops.empty()) return;
  const size_t count = options.verbose
                           ? report.top_ops.size()
                           : std::min(kTopOpsShown, report.top_ops.size());
  // Prints times without nested ops; on a CPU, also times with them.
  const bool gpu = report.has_gpu;
  const std::string title = gpu ? "ops by GPU time" : "ops by self time";
  TextTable table(title + (report.steps.count > 0 ? ", per step" : ""),
                  kOpNameColumns,
                  {{gpu ? "GPU ms" : "self ms", 9},
                   {gpu ? "host ms" : "total ms", 10},
                   {"calls", 8, /*spare=*/1}});
  for (size_t i = 0; i < count; ++i) {
    const TopOp& op = report.top_ops[i];
    table.Add("  " + WithFusedOps(op.name) +
                  (op.other_thread ? " (other thread)" : ""),
              {Number(gpu ? op.gpu_self_ms_per_step : op.self_ms_per_step),
               Number(gpu ? op.self_ms_per_step : op.total_ms_per_step),
               CallsText(op.calls_per_step)});
  }
  PrintLines(table.Lines(options.width), page);
}

void PrintWholeRun(const Report& report, const TextOptions& options,
                   TextPage& page) {
  const std::string text = ToText(report.whole_run, options);
  if (text.empty()) return;
  page.Line();
  // Line() adds the last line end itself.
  page.Line(std::string_view(text).substr(0, text.size() - 1));
}

void PrintCriticalPath(const Report& report, const TextOptions& options,
                       TextPage& page) {
  if (!options.verbose || report.critical_path.empty()) return;
  PrintLines(CriticalPathLines(report, options.width), page);
}

void PrintMemoryPeaks(const Report& report, const TextOptions& options,
                      TextPage& page) {
  if (!options.verbose || report.memory.empty()) return;
  page.Line();
  for (const std::string& peak : MemoryPeakLines(report.memory)) {
    page.Wrapped("memory  ", peak);
  }
}

// Prints what the rules without findings did, and where gains come from.
void PrintRuleStates(const Report& report, TextPage& page) {
  page.Line();
  page.Wrapped("nothing found: ", Listed(RulesWithoutFinding(report)));
  // One line per reason: without a GPU, dozens of rules share one.
  std::vector<std::pair<std::string, std::vector<std::string>>> skipped;
  for (const SkippedRule& rule : report.skipped) {
    auto same = std::ranges::find_if(
        skipped, [&](const auto& one) { return one.first == rule.why; });
    if (same == skipped.end()) same = skipped.insert(same, {rule.why, {}});
    same->second.push_back(rule.id);
  }
  for (const auto& [why, ids] : skipped) {
    page.Wrapped("skipped: ", Listed(ids) + ": " + why);
  }
  if (!report.superseded.empty()) {
    page.Wrapped("superseded: ", Listed(report.superseded));
  }
  if (report.replay.valid) {
    // Only a part of a long recording is replayed.
    const bool part = report.replay.steps < report.steps.steady;
    page.Wrapped("", "Gains are predicted by replaying " +
                         (part ? Count(report.replay.steps, "consecutive step")
                               : std::string("the recorded steps")) +
                         ". Replayed without changes, the step is off by " +
                         Percent(std::abs(report.replay.no_edit_error)) + ".");
  } else if (!report.replay.why_not.empty()) {
    // With several ranks, those whose replay is valid still have predictions.
    page.Wrapped(!report.ranks.rows.empty()
                     ? "Some ranks have upper bounds, not predictions: "
                     : "Gains are upper bounds, not predictions: ",
                 report.replay.why_not);
  }
}

// "24 rules skipped, 2 notes hidden; stepscope analyze --verbose shows why".
// They are only counted here, because most skipped rules are about GPUs or
// several ranks, which is not a fault of the run.
std::string HiddenText(const Report& report) {
  const int64_t skipped = static_cast<int64_t>(report.skipped.size());
  const int64_t notes = std::ranges::count_if(report.findings, IsNote);
  std::string text;
  if (skipped > 0) text = Count(skipped, "rule") + " skipped";
  if (notes > 0) {
    text += (text.empty() ? "" : ", ") + Count(notes, "note") + " hidden";
  }
  return text.empty() ? "" : text + "; stepscope analyze --verbose shows why";
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
    // Nothing is wrong, for example if this machine has no GPU.
    if (loss.severity == Severity::kNote && !options.verbose) continue;
    page.Wrapped(page.Paint("missing: ", ""), text);
  }
  PrintStepBreakdown(report, page);
  PrintFindings(report, options, page);
  PrintLines(RankLines(report, options.verbose, options.width), page);
  PrintWholeRun(report, options, page);
  PrintTopOps(report, options, page);
  PrintLines(PlaceLines(report, options.verbose, options.width), page);
  PrintCriticalPath(report, options, page);
  PrintMemoryPeaks(report, options, page);
  PrintFooter(report, options, page);
  return page.Take();
}

}  // namespace stepscope
