// A Report as Markdown.
#include <stepscope/analysis.h>
#include <stepscope/printable.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/markdown_escape.h"
#include "report/place_text.h"
#include "report/ranks_text.h"
#include "report/step_text.h"
#include "report/whole_run_text.h"
#include "words/code.h"
#include "words/conclusion.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr int kTableColumns = 100;

void AppendHeader(const Report& report, std::string& text) {
  std::string name = report.run.name;
  if (name.empty()) {
    name = std::filesystem::path(report.run.source).filename().string();
  }
  text +=
      "### stepscope: " + MarkdownText(name.empty() ? "run" : name) + "\n\n";
  std::string line = MachineInWords(report);
  if (report.steps.count > 0) {
    line = Count(report.steps.count, "step") +
           (report.steps.count == 1 ? " of " : ", mean ") +
           Milliseconds(report.steps.mean_ms) + "; " + line;
  }
  const std::string rank = RankInWords(report.run);
  text += MarkdownText(line + (rank.empty() ? "" : ", " + rank)) + "\n\n";
  if (report.steps.count == 0 && !FindingSaysNoSteps(report)) {
    text += MarkdownText(NoStepsInWords(report)) + "\n\n";
  }
  const std::string averaged = AveragedStepsText(report);
  if (!averaged.empty()) text += MarkdownText(averaged) + "\n\n";
  for (const std::string& more : {UnprofiledText(report), StallsText(report)}) {
    if (!more.empty()) text += MarkdownText(more) + "\n\n";
  }
  for (const Loss& loss : report.losses) {
    // Nothing is wrong, for example if this machine has no GPU.
    if (loss.severity == Severity::kNote) continue;
    text += "> missing: " +
            MarkdownText(loss.detail.empty() ? loss.name : loss.detail) +
            "\n\n";
  }
}

// The causes of the mean step, largest first; those that round to 0 are left
// out.
void AppendCauses(const Report& report, std::string& text) {
  if (report.time_split_ms.empty()) return;
  text += "| step time by cause | ms | share |\n| --- | ---: | ---: |\n";
  // Negative, so that sorting puts the largest first.
  std::vector<std::pair<double, std::string>> parts;
  for (const auto& [key, ms] : report.time_split_ms) {
    if (Number(ms) != "0") parts.push_back({-ms, key});
  }
  std::ranges::sort(parts);
  for (const auto& [negative_ms, key] : parts) {
    const double ms = -negative_ms;
    text += "| " + CauseInWords(key, report.has_gpu) + " | " + Number(ms) +
            " | " + Percent(ms / report.steps.mean_ms) + " |\n";
  }
  text += "\n";
}

// Marks only what is code.
std::string FixText(const std::string& fix) {
  std::string text;
  for (const TextPart& part : TextPartsOf(fix)) {
    text += part.is_code ? MarkdownCode(part.text) : MarkdownText(part.text);
  }
  return text;
}

void AppendFinding(const Report& report, const Finding& finding,
                   std::string& text) {
  const int number = NumberOf(report, finding);
  const bool about_recording = number == 0;
  // Without a blank line before and after it, what has no number would belong
  // to a numbered item.
  if (about_recording && !text.ends_with("\n\n")) text += "\n";
  text += about_recording ? "**" : std::to_string(number) + ". **";
  text += finding.id + "** (" +
          (about_recording ? StatusName(finding.status)
                           : SeverityName(finding.severity)) +
          ", " + ConfidenceName(finding.confidence) + ")";
  const std::string gain = GainInWords(report, finding);
  if (!gain.empty()) text += " **" + MarkdownText(gain) + "**";
  // Indented lines belong to the numbered item.
  const std::string line = about_recording ? "\n" : "\n   ";
  text += line + MarkdownText(EvidenceBesideLosses(report, finding));
  if (!finding.where.empty())
    text += line + "at " + MarkdownCode(finding.where);
  const bool one_fix = finding.fix_cpp == finding.fix_python;
  if (!finding.fix_cpp.empty()) {
    text += line + (one_fix ? "- fix: " : "- C++: ") + FixText(finding.fix_cpp);
  }
  if (!finding.fix_python.empty() && !one_fix) {
    text += line + "- Python: " + FixText(finding.fix_python);
  }
  if (!finding.also.empty()) {
    text += line + "- also: " + MarkdownText(Listed(finding.also));
  }
  text += about_recording ? "\n\n" : "\n";
}

}  // namespace

std::string ToMarkdown(const Report& report) {
  std::string text;
  AppendHeader(report, text);
  AppendCauses(report, text);
  bool advice = false;
  for (const Finding& finding : report.findings) {
    if (IsNote(finding)) continue;
    // Findings about the recording have no number and are no advice.
    advice |= NumberOf(report, finding) > 0 && !IsQuestion(finding);
    AppendFinding(report, finding, text);
  }
  if (!advice && report.steps.mean_ms > 0) {
    text += MarkdownText(VerdictInWords(report)) + "\n";
  }
  const std::string plan = PlanInWords(report);
  if (!plan.empty()) text += "\n" + MarkdownText(plan) + "\n";
  const std::string held = advice ? HeldBackInWords(report) : "";
  for (const std::string& line : {held, MissingSizesInWords(report)}) {
    if (!line.empty()) text += "\n" + MarkdownText(line) + "\n";
  }
  const std::vector<std::string> unanswered = UnansweredInWords(report);
  if (!unanswered.empty()) text += "\nNo change is offered for\n\n";
  for (const std::string& line : unanswered) {
    text += "- " + MarkdownText(line) + "\n";
  }
  const std::vector<std::string> run = WholeRunLines(report.whole_run);
  for (size_t i = 0; i < run.size(); ++i) {
    text += (i == 0 ? "\n" : "- ") + MarkdownText(run[i]) + "\n";
  }
  // Printed as code, because blanks align the columns.
  for (const std::vector<std::string>& lines :
       {RankLines(report, false, kTableColumns),
        PlaceLines(report, false, kTableColumns)}) {
    if (lines.empty()) continue;
    text += "\n```\n";
    for (const std::string& line : lines) text += Printable(line) + "\n";
    text += "```\n";
  }
  return text;
}

}  // namespace stepscope
