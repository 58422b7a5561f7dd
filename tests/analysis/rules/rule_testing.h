// Looks up what a report says about one rule.
#pragma once

#include <gtest/gtest.h>
#include <stepscope/analysis.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace stepscope {

inline const Finding* Find(const Report& report, std::string_view id) {
  const auto it = std::ranges::find(report.findings, id, &Finding::id);
  return it == report.findings.end() ? nullptr : &*it;
}
// True if the rule ran and found nothing.
inline bool IsClean(const Report& report, std::string_view id) {
  return std::ranges::count(report.clean, id) == 1 ||
         std::ranges::any_of(report.coverage, [&](const CauseAnswer& answer) {
           return std::ranges::count(answer.looked, id) == 1;
         });
}
// Returns why the rule was skipped; empty if it ran.
inline std::string WhySkipped(const Report& report, std::string_view id) {
  const auto it = std::ranges::find(report.skipped, id, &SkippedRule::id);
  return it == report.skipped.end() ? "" : it->why;
}
// True if the report has a finding of the rule with a gain.
inline bool Promises(const Report& report, std::string_view id) {
  const Finding* finding = Find(report, id);
  return finding != nullptr && finding->gain_kind != GainKind::kNone &&
         finding->gain.expected_ms > 0;
}

}  // namespace stepscope
