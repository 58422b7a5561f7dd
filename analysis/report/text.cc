#include <stepscope/analysis.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/head.h"
#include "report/page.h"
#include "report/path.h"
#include "report/ranks_report.h"
#include "report/step_words.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kTopOpsShown = 5;

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

void OneFinding(const Report& report, const Finding& finding,
                const std::string& mark, const TextOptions& options,
                Page& page) {
  const bool trust = finding.severity == FindingSeverity::kNote &&
                     finding.status != FindingStatus::kOk;
  std::string line = mark + " " + page.Paint(finding.id, ColorOf(finding));
  line +=
      std::string("  ") +
      (trust ? StatusName(finding.status) : SeverityName(finding.severity)) +
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

void Findings(const Report& report, const TextOptions& options, Page& page) {
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
    OneFinding(report, finding,
               number > 0 ? std::to_string(number) + " " : "! ", options, page);
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
    page.Line("Notes (too small to matter, or nothing to win here)");
    for (const Finding& finding : report.findings) {
      if (IsNote(finding)) OneFinding(report, finding, "- ", options, page);
    }
  }
}

void Ranks(const Report& report, const TextOptions& options, Page& page) {
  const std::vector<std::string> lines = RankLines(report, options.verbose);
  if (!lines.empty()) page.Line();
  for (const std::string& line : lines) page.Line(line);
}

void TopOps(const Report& report, const TextOptions& options, Page& page) {
  if (report.top_ops.empty()) return;
  const size_t count = options.verbose
                           ? report.top_ops.size()
                           : std::min(kTopOpsShown, report.top_ops.size());
  size_t width = 24;
  for (size_t i = 0; i < count; ++i) {
    width =
        std::max(width, std::min<size_t>(Columns(report.top_ops[i].name), 56));
  }
  const auto right = [](std::string text, size_t columns) {
    return std::string(columns - std::min(columns, text.size()), ' ') + text;
  };
  const bool per_step = report.steps.count > 0;
  page.Line();
  const std::string title =
      per_step ? "ops by own time, per step" : "ops by own time";
  page.Line(title +
            std::string(width + 2 - std::min(width + 1, title.size()), ' ') +
            right("own ms", 9) + right("total ms", 10) + right("calls", 8));
  for (size_t i = 0; i < count; ++i) {
    const TopOp& op = report.top_ops[i];
    std::string name = Printable(op.name);
    if (name.size() > width) {
      size_t cut = width - 3;
      while (cut > 0 &&
             (static_cast<unsigned char>(name[cut]) & 0xc0) == 0x80) {
        --cut;
      }
      name = name.substr(0, cut) + "...";
    }
    const double calls = op.calls_per_step;
    const std::string called =
        std::abs(calls - std::round(calls)) < 0.05 || calls >= 100
            ? std::to_string(std::llround(calls))
            : Number(calls);
    page.Line("  " + name + std::string(width - Columns(name), ' ') +
              right(Number(op.self_ms_per_step), 9) +
              right(Number(op.total_ms_per_step), 10) + right(called, 8));
  }
}

void Path(const Report& report, const TextOptions& options, Page& page) {
  if (!options.verbose || report.critical_path.empty()) return;
  page.Line();
  for (const std::string& line : PathLines(report)) page.Line(line);
}

void Memory(const Report& report, const TextOptions& options, Page& page) {
  if (!options.verbose || report.memory.empty()) return;
  page.Line();
  for (const std::string& peak : PeaksInWords(report.memory)) {
    page.Wrapped("memory  ", peak);
  }
}

void Footer(const Report& report, const TextOptions& options, Page& page) {
  if (options.verbose) {
    page.Line();
    std::string clean;
    for (const std::string& id : report.clean) {
      clean += (clean.empty() ? "" : ", ") + id;
    }
    page.Wrapped("looked, nothing found: ", clean);
    for (const SkippedRule& entry : report.skipped) {
      page.Wrapped("could not look: ", entry.id + ": " + entry.why);
    }
    for (const std::string& superseded : report.superseded) {
      page.Wrapped("told under another finding: ", superseded);
    }
    if (report.replay.valid) {
      const std::string part =
          report.replay.steps < report.steps.steady
              ? " of " + Count(report.replay.steps, "step") + " in a row"
              : "";
      page.Wrapped("", "gains by replay" + part +
                           "; replayed unchanged, the step is off by " +
                           Percent(std::abs(report.replay.no_edit_error)));
    } else if (!report.replay.why_not.empty()) {
      page.Wrapped("gains are upper bounds: ", report.replay.why_not);
    }
  }
  std::string line;
  const auto add = [&](const std::string& text) {
    line += (line.empty() ? "" : "   ") + text;
  };
  const auto notes = std::ranges::count_if(report.findings, IsNote);
  // Most are about GPUs, or several ranks: no fault of the run or of ours.
  std::string not_asked;
  if (!options.verbose) {
    if (notes > 0) add("notes: " + std::to_string(notes));
    if (!report.skipped.empty()) {
      not_asked = "rules that do not apply here or lack data: " +
                  std::to_string(report.skipped.size()) +
                  " (stepscope analyze --verbose says why)";
    }
  }
  if (!options.details_path.empty()) add("details: " + options.details_path);
  if (!options.view_command.empty()) add("view: " + options.view_command);
  if (line.empty() && not_asked.empty()) return;
  page.Line();
  page.Wrapped("", not_asked);
  if (!line.empty()) page.Line(line);
}

}  // namespace

std::string ToText(const Report& report, const TextOptions& options) {
  Page page(options);
  Title(report, page);
  for (const Loss& loss : report.losses) {
    std::string text = loss.detail.empty() ? loss.name : loss.detail;
    if (loss.severity == Severity::kNote && !options.verbose) continue;
    page.Wrapped(page.Paint("missing: ", ""), text);
  }
  StepSplit(report, page);
  Findings(report, options, page);
  Ranks(report, options, page);
  TopOps(report, options, page);
  Path(report, options, page);
  Memory(report, options, page);
  Footer(report, options, page);
  return page.Take();
}

}  // namespace stepscope
