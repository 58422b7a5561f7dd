#include "judge.h"

#include <algorithm>

#include "everywhere.h"

namespace gallery {
namespace {

const Told* Find(const std::vector<Told>& told, std::string_view rule) {
  const auto it = std::ranges::find(told, rule, &Told::rule);
  return it == told.end() ? nullptr : &*it;
}

bool MaySpeak(const Pattern& pattern, std::string_view rule, bool fixed) {
  std::vector<Also> may = AlsoEverywhere();
  may.insert(may.end(), pattern.also.begin(), pattern.also.end());
  if (pattern.needs_gpu) {
    may.push_back({"observer-effect",
                   "recording launches takes as long as a step of a few of "
                   "them, on an H200 with a slow host",
                   /*when_fixed=*/true});
  }
  return std::ranges::any_of(may, [&](const Also& also) {
    return also.rule == rule && (also.when_fixed || !fixed);
  });
}

void AddOthers(const Pattern& pattern, const std::vector<Told>& told,
               bool fixed, std::vector<std::string>& wrong) {
  for (const Told& one : told) {
    if (one.rule == pattern.rule || one.is_note) continue;
    if (MaySpeak(pattern, one.rule, fixed)) continue;
    wrong.push_back(one.rule + " without cause" + (fixed ? ", fixed" : "") +
                    ": " + one.evidence);
  }
}

}  // namespace

std::vector<Told> ToldBy(const stepscope::Report& report) {
  std::vector<Told> told;
  for (const stepscope::Finding& finding : report.findings) {
    told.push_back({finding.id, finding.evidence,
                    finding.status == stepscope::FindingStatus::kOk});
  }
  return told;
}

std::vector<std::string> Judge(const Pattern& pattern,
                               const std::vector<Told>& bad,
                               const std::vector<Told>& fixed) {
  std::vector<std::string> wrong;
  const Told* finding = Find(bad, pattern.rule);
  if (finding == nullptr) {
    wrong.push_back("missed");
  } else if (finding->is_note && !pattern.is_note) {
    wrong.push_back("only a note: " + finding->evidence);
  }
  AddOthers(pattern, bad, false, wrong);
  const Told* left = Find(fixed, pattern.rule);
  if (left != nullptr && (!left->is_note || pattern.is_note)) {
    wrong.push_back("still told when fixed: " + left->evidence);
  }
  AddOthers(pattern, fixed, true, wrong);
  return wrong;
}

std::vector<const Pattern*> Patterns(bool needs_gpu) {
  std::vector<const Pattern*> patterns = AllPatterns();
  std::erase_if(patterns,
                [&](const Pattern* p) { return p->needs_gpu != needs_gpu; });
  return patterns;
}

std::string Underscored(std::string_view rule) {
  std::string name(rule);
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace gallery
