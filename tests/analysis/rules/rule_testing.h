// Asking one rule by name.
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
inline bool IsClean(const Report& report, std::string_view id) {
  return std::ranges::count(report.clean, id) == 1;
}
// Why the rule could not look; empty if it did.
inline std::string WhyBlind(const Report& report, std::string_view id) {
  const auto it = std::ranges::find(report.skipped, id, &SkippedRule::id);
  return it == report.skipped.end() ? "" : it->why;
}
// Promises a gain.
inline bool Promises(const Report& report, std::string_view id) {
  const Finding* finding = Find(report, id);
  return finding != nullptr && finding->gain_kind != GainKind::kNone &&
         finding->gain.expected_ms > 0;
}

}  // namespace stepscope
