#include <absl/status/status.h>
#include <stepscope/rules.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "output.h"

namespace stepscope {
namespace {

constexpr OptionName kOptions[] = {{"--output", true, "-o"}};
constexpr size_t kColumns = 80;
constexpr size_t kLabelColumns = 18;

constexpr const char* kRulesUsage =
    R"(Usage: stepscope rules [--output FILE]

Lists the rules: the ID of each and the question it answers. `stepscope explain
ID` describes one in full.

Options:
  --output FILE, -o FILE  write to FILE
  --help, -h              print this text
)";
constexpr const char* kExplainUsage =
    R"(Usage: stepscope explain [--output FILE] ID...

Describes rules: the question each answers, which runs it applies to, when it
reports a finding and when it does not, the fix, and the reference. `stepscope
rules` lists the IDs.

Options:
  --output FILE, -o FILE  write to FILE
  --help, -h              print this text
)";

// `text` after a label, broken at blanks; empty for an empty text.
std::string Paragraph(std::string_view label, std::string_view text) {
  if (text.empty()) return "";
  std::string line(label);
  line.resize(kLabelColumns, ' ');
  std::string all;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    // A word longer than a line stands on one of its own.
    if (line.size() + word.size() + 1 > kColumns &&
        line.size() > kLabelColumns) {
      all += line + "\n";
      line.assign(kLabelColumns, ' ');
    }
    if (line.size() > kLabelColumns) line += ' ';
    line += word;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return all + line + "\n";
}

std::string Explained(const RuleText& rule) {
  std::string text = rule.id + "\n";
  text += Paragraph("question", rule.question);
  text += Paragraph("applies to", rule.applies);
  text += Paragraph("needs", rule.needs);
  text += Paragraph("reported when", rule.detect);
  text += Paragraph("not reported when", rule.avoid);
  if (rule.fix_cpp == rule.fix_python) {
    text += Paragraph("fix", rule.fix_cpp);
  } else {
    text += Paragraph("fix (C++)", rule.fix_cpp);
    text += Paragraph("fix (Python)", rule.fix_python);
  }
  return text + Paragraph("reference", rule.reference);
}

// What to try instead of a word that is not an ID: the IDs that contain it,
// else the nearest one.
std::string Instead(std::string_view word,
                    const std::vector<std::string_view>& ids) {
  std::string holding;
  for (std::string_view id : ids) {
    if (word.empty() || id.find(word) == std::string_view::npos) continue;
    holding += (holding.empty() ? "" : ", ") + std::string(id);
  }
  if (!holding.empty()) return "IDs that contain it: " + holding;
  const std::string_view nearest = Nearest(word, ids);
  return nearest.empty() ? "stepscope rules lists the IDs"
                         : "did you mean '" + std::string(nearest) + "'?";
}

}  // namespace

int RulesCommand(Words words) {
  const auto given = ParseCommandWords(words, kOptions);
  if (!given.ok()) return UsageError(given.status());
  if (given->has("--help")) {
    std::fputs(kRulesUsage, stdout);
    return 0;
  }
  if (!given->arguments.empty()) {
    return UsageError(
        "rules takes no argument; to describe one rule: stepscope explain ID");
  }
  std::string text;
  for (const RuleText& rule : RuleTexts()) {
    std::string id = rule.id;
    id.resize(std::max<size_t>(id.size() + 1, 24), ' ');
    text += id + rule.question + "\n";
  }
  return WriteResult(text, given->value("--output"));
}

int ExplainCommand(Words words) {
  const auto given = ParseCommandWords(words, kOptions);
  if (!given.ok()) return UsageError(given.status());
  if (given->has("--help")) {
    std::fputs(kExplainUsage, stdout);
    return 0;
  }
  if (given->arguments.empty()) {
    return UsageError(
        "explain needs the ID of a rule; stepscope rules lists the IDs");
  }
  const std::vector<RuleText> rules = RuleTexts();
  std::vector<std::string_view> ids;
  for (const RuleText& rule : rules) ids.push_back(rule.id);
  std::string text;
  for (const std::string& id : given->arguments) {
    const auto rule = std::ranges::find(rules, id, &RuleText::id);
    if (rule == rules.end()) {
      return UsageError("no rule has the ID '" + id + "'; " + Instead(id, ids));
    }
    text += (text.empty() ? "" : "\n") + Explained(*rule);
  }
  return WriteResult(text, given->value("--output"));
}

}  // namespace stepscope
