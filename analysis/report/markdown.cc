#include <stepscope/analysis.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/markdown_text.h"
#include "report/ranks_report.h"
#include "report/step_words.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
std::string ToMarkdown(const Report& report) {
  std::string name = report.run.name;
  if (name.empty()) {
    name = std::filesystem::path(report.run.source).filename().string();
  }
  std::string text =
      "### stepscope: " + MarkdownText(name.empty() ? "run" : name);
  text += "\n\n";
  std::string line = MachineInWords(report);
  if (report.steps.count > 0) {
    line = Count(report.steps.count, "step") + " of " +
           Milliseconds(report.steps.mean_ms) + " on " + line;
  }
  const std::string rank = RankInWords(report.run);
  text += MarkdownText(line + (rank.empty() ? "" : ", " + rank)) + "\n\n";
  const std::string averaged = StepsInWords(report);
  if (!averaged.empty()) text += MarkdownText(averaged) + "\n\n";
  for (const Loss& loss : report.losses) {
    text += "> missing: " +
            MarkdownText(loss.detail.empty() ? loss.name : loss.detail) +
            "\n\n";
  }
  if (!report.time_split_ms.empty()) {
    text += "| where a step goes | ms | |\n| --- | ---: | ---: |\n";
    std::vector<std::pair<double, std::string>> parts;
    for (const auto& [key, ms] : report.time_split_ms) {
      if (Number(ms) != "0") parts.push_back({-ms, key});
    }
    std::ranges::sort(parts);
    for (const auto& [less_ms, key] : parts) {
      const double ms = -less_ms;
      text += "| " + CauseInWords(key, report.has_gpu) + " | " + Number(ms) +
              " | " + Percent(ms / report.steps.mean_ms) + " |\n";
    }
    text += "\n";
  }
  bool advice = false;
  for (const Finding& finding : report.findings) {
    if (IsNote(finding)) continue;
    const int number = NumberOf(report, finding);
    const bool trust = number == 0;
    advice |= !trust;
    const std::string gain = GainInWords(report, finding);
    text += trust ? "**" : std::to_string(number) + ". **";
    text +=
        finding.id + "** (" +
        (trust ? StatusName(finding.status) : SeverityName(finding.severity)) +
        ", " + ConfidenceName(finding.confidence) + ")";
    if (!gain.empty()) text += " **" + MarkdownText(gain) + "**";
    const char* indent = trust ? "\n" : "\n   ";
    text += indent + MarkdownText(finding.evidence);
    if (!finding.where.empty())
      text += indent + ("at " + MarkdownCode(finding.where));
    if (finding.fix_cpp == finding.fix_python && !finding.fix_cpp.empty()) {
      text += indent + ("- fix: " + MarkdownCode(finding.fix_cpp));
    } else if (!finding.fix_cpp.empty()) {
      text += indent + ("- C++: " + MarkdownCode(finding.fix_cpp));
    }
    if (!finding.fix_python.empty() && finding.fix_python != finding.fix_cpp) {
      text += indent + ("- Python: " + MarkdownCode(finding.fix_python));
    }
    text += "\n";
  }
  if (!advice && report.steps.count > 0) {
    text += MarkdownText(VerdictInWords(report)) + "\n";
  }
  const std::string plan = PlanInWords(report);
  if (!plan.empty()) text += "\n" + MarkdownText(plan) + "\n";
  const std::vector<std::string> ranks = RankLines(report, false);
  if (ranks.empty()) return text;
  text += "\n```\n";
  for (const std::string& line : ranks) text += line + "\n";
  return text + "```\n";
}

}  // namespace stepscope
