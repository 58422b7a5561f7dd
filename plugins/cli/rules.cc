#include <absl/status/status.h>
#include <stepscope/rules.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "advice_commands.h"
#include "arguments.h"
#include "command_words.h"
#include "complain.h"
#include "output.h"

namespace stepscope {
namespace {

constexpr OptionName kOptions[] = {{"--output", true, "-o"}};
constexpr size_t kColumns = 80;

constexpr const char* kRulesUsage =
    R"(Usage: stepscope rules [--output FILE]

Lists what a report looks for, a line a rule. `stepscope explain ID` tells one
of them in full.
)";
constexpr const char* kExplainUsage =
    R"(Usage: stepscope explain [--output FILE] ID...

Tells of each rule what it asks, when it fires and when it stays silent, what to
do and where that comes from. `stepscope rules` lists the IDs.
)";

// `text` behind a label of ten columns, broken at blanks.
std::string Paragraph(std::string_view label, std::string_view text) {
  if (text.empty()) return "";
  std::string line(label);
  line.resize(10, ' ');
  std::string all;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (line.size() + word.size() + 1 > kColumns && line.size() > 10) {
      all += line + "\n";
      line.assign(10, ' ');
    }
    if (line.size() > 10) line += ' ';
    line += word;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return all + line + "\n";
}

std::string Explained(const RuleText& rule) {
  std::string text = rule.id + "\n";
  text += Paragraph("asks", rule.question);
  text += Paragraph("of", rule.applies + "; needs " + rule.needs);
  text += Paragraph("fires", rule.detect);
  text += Paragraph("but not", rule.avoid);
  if (rule.fix_cpp == rule.fix_python) {
    text += Paragraph("fix", rule.fix_cpp);
  } else {
    text += Paragraph("C++", rule.fix_cpp);
    text += Paragraph("Python", rule.fix_python);
  }
  return text + Paragraph("see", rule.reference);
}

// What to try instead of a word that is no ID: the IDs it is part of, else the
// one it may be a slip of.
std::string Instead(std::string_view word,
                    const std::vector<std::string_view>& ids) {
  std::string holding;
  for (std::string_view id : ids) {
    if (word.empty() || id.find(word) == std::string_view::npos) continue;
    holding += (holding.empty() ? "" : ", ") + std::string(id);
  }
  if (!holding.empty()) return "there are: " + holding;
  const std::string_view nearest = Nearest(word, ids);
  return nearest.empty() ? "stepscope rules lists them"
                         : "did you mean '" + std::string(nearest) + "'?";
}

int Write(const std::string& text, const CommandWords& words) {
  const absl::Status written = WriteOut(text, words.value("--output"));
  if (written.ok()) return 0;
  Complain(written);
  return 1;
}

}  // namespace

int RulesCommand(std::span<const std::string> words) {
  const auto given = ParseCommandWords(words, kOptions);
  if (!given.ok()) return UsageError(given.status());
  if (given->has("--help")) {
    std::fputs(kRulesUsage, stdout);
    return 0;
  }
  if (!given->paths.empty()) {
    return UsageError(absl::InvalidArgumentError(
        "rules takes no argument; for one rule: stepscope explain ID"));
  }
  std::string text;
  for (const RuleText& rule : RuleTexts()) {
    std::string id = rule.id;
    id.resize(std::max<size_t>(id.size() + 1, 24), ' ');
    text += id + rule.question + "\n";
  }
  return Write(text, *given);
}

int ExplainCommand(std::span<const std::string> words) {
  const auto given = ParseCommandWords(words, kOptions);
  if (!given.ok()) return UsageError(given.status());
  if (given->has("--help")) {
    std::fputs(kExplainUsage, stdout);
    return 0;
  }
  if (given->paths.empty()) {
    return UsageError(absl::InvalidArgumentError(
        "explain needs the ID of a rule; stepscope rules lists them"));
  }
  const std::vector<RuleText> rules = RuleTexts();
  std::vector<std::string_view> ids;
  for (const RuleText& rule : rules) ids.push_back(rule.id);
  std::string text;
  for (const std::string& id : given->paths) {
    const auto rule = std::ranges::find(rules, id, &RuleText::id);
    if (rule == rules.end()) {
      return UsageError(absl::InvalidArgumentError("no rule is called '" + id +
                                                   "'; " + Instead(id, ids)));
    }
    text += (text.empty() ? "" : "\n") + Explained(*rule);
  }
  return Write(text, *given);
}

std::optional<int> RunAdviceCommand(std::span<const std::string> words) {
  if (words.empty()) return std::nullopt;
  if (words[0] == "compare") return CompareCommand(words);
  if (words[0] == "rules") return RulesCommand(words);
  if (words[0] == "explain") return ExplainCommand(words);
  return std::nullopt;
}

}  // namespace stepscope
