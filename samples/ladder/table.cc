#include "table.h"

#include <cmath>
#include <cstdio>

namespace ladder {
namespace {

// Parts of the step below this are not worth a word in a table.
constexpr double kWorthAWord = 0.02;

template <typename... Args>
std::string Print(const char* format, Args... args) {
  char text[160];
  std::snprintf(text, sizeof(text), format, args...);
  return text;
}

std::string Times(double factor) { return Print("×%.2f", factor); }

std::string Split(const ProfileFacts& facts) {
  std::string text;
  for (const auto& [cause, ms] : facts.split) {
    if (ms < kWorthAWord * facts.step_ms) continue;
    text += text.empty() ? "" : ", ";
    text += cause + Print(" %.0f %%", 100 * ms / facts.step_ms);
  }
  return text;
}

std::string Share(double frac) {
  return frac < 0 ? "-" : Print("%.1f %%", 100 * frac);
}

std::string Predicted(const Reason& reason) {
  if (reason.finding.empty()) return "-";
  const std::string of =
      reason.of_change.empty() ? "" : ", of `" + reason.of_change + "`";
  if (reason.gain_is == "bound") return "at most " + Times(reason.factor) + of;
  return Times(reason.factor) + " (" + Times(reason.factor_low) + " to " +
         Times(reason.factor_high) + ")" + of;
}

std::string Measured(const Taken& taken) {
  if (!taken.failed.empty()) return "fails";
  if (taken.measured.after.empty()) return "-";
  measure::Interval range = taken.factor_interval();
  std::string text = Times(taken.factor()) + " (" + Times(range.low) + " to " +
                     Times(range.high) + ")";
  return taken.kept ? text : text + ", taken back";
}

std::string Row(const Taken& taken, size_t number) {
  return "| " + std::to_string(number) + " | " + taken.rung.name + " | `" +
         taken.rung.flags + "` | " +
         Print("%.1f (%.1f to %.1f)", taken.samples_per_s,
               taken.samples_per_s_low, taken.samples_per_s_high) +
         " | " + Print("%.1f", taken.facts.step_ms) + " | " +
         Split(taken.facts) + " | " + Share(taken.facts.busy_frac) + " | " +
         Share(taken.facts.tensor_core_frac) + " | " +
         (taken.reason.finding.empty() ? "-" : taken.reason.finding) + " | " +
         Predicted(taken.reason) + " | " + Measured(taken) + " |\n";
}

// What failed, in the program's words, and the way up.
std::string Below(const Ladder& ladder) {
  std::string text;
  for (size_t i = 0; i < ladder.rungs.size(); ++i) {
    if (ladder.rungs[i].failed.empty()) continue;
    text += "\nRung " + std::to_string(i) + " fails:\n\n```\n" +
            ladder.rungs[i].failed + "\n```\n";
  }
  const measure::Comparison& whole = ladder.whole;
  if (whole.after.empty()) return text + "\nNo rung was faster.\n";
  const measure::Interval ratio = whole.interval();
  return text + "\nThe baseline and the top, run in turn: " +
         Print("%.1f", whole.before_samples_per_s()) + " and " +
         Print("%.1f", whole.after_samples_per_s()) + " samples/s, " +
         Times(1 / whole.ratio()) + " (" + Times(1 / ratio.high) + " to " +
         Times(1 / ratio.low) + "), at the top with `" +
         ladder.rungs[ladder.top].settings.Text() + "`.\n";
}

}  // namespace

std::string ToMarkdown(const Ladder& ladder, const Heading& heading) {
  const std::vector<Taken>& rungs = ladder.rungs;
  std::string out = heading.date + ", " + rungs[0].facts.machine + ". `" +
                    heading.command + "`\n\n";
  if (!heading.chart.empty()) {
    out += "![samples per second, rung by rung](" + heading.chart + ")\n\n";
  }
  out +=
      "| rung | what | flags | samples/s (least to most) | step recorded, ms | "
      "where it goes | device busy | Tensor Cores | finding that led here | "
      "predicted | measured (95 %) |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (size_t i = 0; i < rungs.size(); ++i) out += Row(rungs[i], i);
  return out + Below(ladder);
}

absl::StatusOr<std::string> ReplaceMarked(std::string_view text,
                                          std::string_view name,
                                          std::string_view section) {
  const std::string begin_mark = "<!-- " + std::string(name) + " begin";
  const std::string end_mark = "<!-- " + std::string(name) + " end -->";
  const size_t begin = text.find(begin_mark);
  const size_t end = text.find(end_mark);
  if (begin == text.npos && end == text.npos) {
    std::string out(text);
    if (!out.empty() && !out.ends_with("\n")) out += "\n";
    return out + begin_mark + " -->\n" + std::string(section) + end_mark + "\n";
  }
  const size_t line =
      begin == text.npos ? text.npos : text.find("-->\n", begin);
  if (line == text.npos || end == text.npos || end < line) {
    return absl::InvalidArgumentError(
        "\"" + begin_mark + " ... -->\" and \"" + end_mark +
        "\" do not stand on lines of their own, one after the other");
  }
  return std::string(text.substr(0, line + 4)) + std::string(section) +
         std::string(text.substr(end));
}

}  // namespace ladder
