#include <absl/status/statusor.h>
#include <stepscope/rules.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "output.h"
#include "report/layout/text_page.h"
#include "rule_list.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr Option kOptions[] = {{.name = "--output",
                                .short_name = "-o",
                                .value = "FILE",
                                .help = "write to FILE"}};
constexpr std::string_view kFormats[] = {"text", "json"};
constexpr Option kRulesOptions[] = {
    {.name = "--format",
     .value = "FORMAT",
     .help = "output format (default: text). json has the texts of every rule",
     .choices = kFormats},
    kOptions[0]};
// Explanations are prose, which does not become easier to read with longer
// lines.
constexpr int kColumns = 80;
constexpr size_t kLabelColumns = 18;
constexpr size_t kIdColumns = 24;

std::string Explained(const RuleText& rule, int width) {
  TextOptions options;
  options.width = std::min(width, kColumns);
  TextPage page(options);
  const auto add = [&](std::string_view label, std::string_view text) {
    page.Wrapped(PadRight(label, kLabelColumns), text);
  };
  page.Line(rule.id);
  add("question", rule.question);
  add("applies to", rule.applies);
  add("needs", rule.needs);
  add("reported when", rule.detect);
  add("not reported when", rule.avoid);
  if (rule.fix_cpp == rule.fix_python) {
    add("fix", rule.fix_cpp);
  } else {
    add("fix (C++)", rule.fix_cpp);
    add("fix (Python)", rule.fix_python);
  }
  add("reference", rule.reference);
  return page.Take();
}

// Returns what to try instead of a word that is not an ID: the IDs that contain
// it, else the nearest ID.
std::string Instead(std::string_view word,
                    const std::vector<std::string_view>& ids) {
  std::string holding;
  for (std::string_view id : ids) {
    // Skip the empty word, which every ID contains.
    if (word.empty() || id.find(word) == std::string_view::npos) continue;
    holding += (holding.empty() ? "" : ", ") + std::string(id);
  }
  if (!holding.empty()) return "IDs that contain it: " + holding;
  const std::string_view nearest = Nearest(word, ids);
  return nearest.empty() ? "stepscope rules lists the IDs"
                         : "did you mean '" + std::string(nearest) + "'?";
}

// Returns the rule whose ID is `word`, or the only rule whose ID starts with
// it. Errors: InvalidArgument.
absl::StatusOr<RuleText> RuleOf(const std::string& word,
                                const std::vector<RuleText>& rules) {
  std::vector<std::string> beginning;
  const RuleText* found = nullptr;
  for (const RuleText& rule : rules) {
    // An exact ID wins over longer ones that start with it.
    if (rule.id == word) return rule;
    if (word.empty() || !rule.id.starts_with(word)) continue;
    beginning.push_back(rule.id);
    found = &rule;
  }
  if (beginning.size() == 1) return *found;
  if (!beginning.empty()) {
    return absl::InvalidArgumentError("several IDs begin with '" + word +
                                      "': " + Listed(beginning));
  }
  std::vector<std::string_view> ids;
  for (const RuleText& rule : rules) ids.push_back(rule.id);
  return absl::InvalidArgumentError("no rule has the ID '" + word + "'; " +
                                    Instead(word, ids));
}

int RunRules(const CommandWords& given) {
  if (!given.arguments.empty()) {
    return UsageError(
        "rules takes no argument; to describe one rule: stepscope explain ID");
  }
  const auto format = ChoiceOf(given, "--format", kFormats);
  if (!format.ok()) return UsageError(format.status());
  const std::string output = given.value("--output");
  if (*format == 1) return WriteResult(RulesJson(), output);
  std::string text;
  for (const RuleText& rule : RuleTexts()) {
    // Two blanks tell FitLines() where the text begins.
    text += PadRight(rule.id, kIdColumns) + "  " + rule.question + "\n";
  }
  return WriteResult(FitLines(text, WidthFor(output, 0)), output);
}

int RunExplain(const CommandWords& given) {
  if (given.arguments.empty()) {
    return UsageError(
        "explain needs the ID of a rule; stepscope rules lists the IDs");
  }
  const std::vector<RuleText> rules = RuleTexts();
  const std::string output = given.value("--output");
  std::string text;
  for (const std::string& id : given.arguments) {
    const absl::StatusOr<RuleText> rule = RuleOf(id, rules);
    // Nothing is printed yet, so that a wrong ID among several prints only the
    // error.
    if (!rule.ok()) return UsageError(rule.status());
    text += (text.empty() ? "" : "\n") +
            Explained(*rule, WidthFor(output, kColumns));
  }
  return WriteResult(text, output);
}

}  // namespace

const Command kRulesCommand = {
    .name = "rules",
    .arguments = "",
    .summary = "list the rules and what each one asks",
    .description =
        "Lists the rules: the ID of each and the question it answers. "
        "`stepscope explain ID` describes one in full.",
    .options = kRulesOptions,
    .exit_status = "0 done, 1 the output could not be written, 2 wrong usage.",
    .completes = Arguments::kNone,
    .run = RunRules};

const Command kExplainCommand = {
    .name = "explain",
    .arguments = "ID...",
    .summary = "describe rules: when they report, what to do",
    .description =
        "Describes rules: the question each answers, which runs it applies to, "
        "when it reports a finding and when it does not, the fix, and the "
        "reference. `stepscope rules` lists the IDs; the beginning of an ID is "
        "enough where no other one begins with it.",
    .options = kOptions,
    .exit_status = "0 done, 1 the output could not be written, 2 wrong usage.",
    .completes = Arguments::kRules,
    .run = RunExplain};

}  // namespace stepscope
