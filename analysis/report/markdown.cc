#include <stepscope/analysis.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "labels.h"
#include "ranks.h"
#include "step_words.h"
#include "words.h"

namespace stepscope {
namespace {

// Text inside a table cell or a sentence: nothing in it may start markup.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (c == '\n' || c == '\r') c = ' ';
    if (std::string_view("\\`*_{}[]<>|#").find(c) != std::string_view::npos) {
      escaped += '\\';
    }
    escaped += c;
  }
  return escaped;
}

// A code span that survives backquotes and table bars in its text.
std::string Code(std::string_view text) {
  std::string code;
  for (char c : text) code += c == '`' ? '\'' : c == '\n' ? ' ' : c;
  return "`" + code + "`";
}

}  // namespace

std::string ToMarkdown(const Report& report) {
  std::string name = report.run.name;
  if (name.empty()) {
    name = std::filesystem::path(report.run.source).filename().string();
  }
  std::string text = "### stepscope: " + Escaped(name.empty() ? "run" : name);
  text += "\n\n";
  std::string line = MachineInWords(report);
  if (report.steps.count > 0) {
    line = Count(report.steps.count, "step") + " of " +
           Milliseconds(report.steps.mean_ms) + " on " + line;
  }
  const std::string rank = RankInWords(report.run);
  text += Escaped(line + (rank.empty() ? "" : ", " + rank)) + "\n\n";
  const std::string averaged = StepsInWords(report);
  if (!averaged.empty()) text += Escaped(averaged) + "\n\n";
  for (const Loss& loss : report.losses) {
    text +=
        "> missing: " + Escaped(loss.detail.empty() ? loss.name : loss.detail) +
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
    if (!gain.empty()) text += " **" + Escaped(gain) + "**";
    const char* indent = trust ? "\n" : "\n   ";
    text += indent + Escaped(finding.evidence);
    if (!finding.where.empty()) text += indent + ("at " + Code(finding.where));
    if (!finding.fix_cpp.empty()) {
      text += indent + ("- C++: " + Code(finding.fix_cpp));
    }
    if (!finding.fix_python.empty()) {
      text += indent + ("- Python: " + Code(finding.fix_python));
    }
    text += "\n";
  }
  if (!advice && report.steps.count > 0) {
    text += Escaped(VerdictInWords(report)) + "\n";
  }
  const std::string plan = PlanInWords(report);
  if (!plan.empty()) text += "\n" + Escaped(plan) + "\n";
  const std::vector<std::string> ranks = RankLines(report, false);
  if (ranks.empty()) return text;
  text += "\n```\n";
  for (const std::string& line : ranks) text += line + "\n";
  return text + "```\n";
}

}  // namespace stepscope
