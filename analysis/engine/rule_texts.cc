#include <stepscope/rules.h>

#include <algorithm>

#include "context/rule.h"
#include "engine/rule_families.h"

namespace stepscope {
namespace {

std::string AppliesTo(const Rule& rule) {
  if (rule.check_ranks != nullptr) return "runs of several ranks";
  switch (rule.runs) {
    case Runs::kGpuOnly:
      return "runs with a GPU";
    case Runs::kCpuOnly:
      return "runs without a GPU";
    case Runs::kAll:
      break;
  }
  return "all runs";
}

std::string NeedsOf(const Rule& rule) {
  std::string text = rule.needs_steps ? "steps" : "";
  for (Kind kind : rule.needs) {
    text +=
        (text.empty() ? "" : ", ") + std::string(KindName(kind)) + " events";
  }
  return text.empty() ? "no particular events" : text;
}

}  // namespace

const Rule* FindRule(std::string_view id) {
  for (std::span<const Rule> family : RuleFamilies()) {
    const auto rule = std::ranges::find(family, id, &Rule::id);
    if (rule != family.end()) return &*rule;
  }
  return nullptr;
}

std::vector<RuleText> RuleTexts() {
  std::vector<RuleText> texts;
  for (std::span<const Rule> family : RuleFamilies()) {
    for (const Rule& rule : family) {
      texts.push_back({.id = rule.id,
                       .question = rule.question,
                       .applies = AppliesTo(rule),
                       .needs = NeedsOf(rule),
                       .detect = rule.detect,
                       .avoid = rule.avoid,
                       .fix_cpp = rule.fix_cpp,
                       .fix_python = rule.fix_python,
                       .reference = rule.reference});
    }
  }
  std::ranges::sort(texts, {}, &RuleText::id);
  return texts;
}

}  // namespace stepscope
