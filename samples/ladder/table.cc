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
  if (reason.gain_is == "bound") return "at most " + Times(reason.factor);
  return Times(reason.factor) + " (" + Times(reason.factor_low) + " to " +
         Times(reason.factor_high) + ")";
}

std::string Measured(const Taken& taken) {
  if (taken.measured.after.empty()) return "-";
  measure::Interval range = taken.factor_interval();
  std::string text = Times(taken.factor()) + " (" + Times(range.low) + " to " +
                     Times(range.high) + ")";
  return taken.kept ? text : text + ", taken back";
}

std::string Row(const Taken& taken, size_t number) {
  std::string flags = taken.settings.Text();
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

const Taken& Top(const std::vector<Taken>& ladder) {
  size_t top = 0;
  for (size_t i = 1; i < ladder.size(); ++i) {
    if (ladder[i].kept) top = i;
  }
  return ladder[top];
}

}  // namespace

std::string ToMarkdown(const std::vector<Taken>& ladder,
                       const Heading& heading) {
  const Taken& top = Top(ladder);
  std::string out = heading.date + ", " + ladder[0].facts.machine + ". `" +
                    heading.command + "`\n\n";
  if (!heading.chart.empty()) {
    out += "![samples per second, rung by rung](" + heading.chart + ")\n\n";
  }
  out +=
      "| rung | what | flags | samples/s (least to most) | step recorded, ms | "
      "where it goes | device busy | Tensor Cores | finding that led here | "
      "predicted | measured (95 %) |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (size_t i = 0; i < ladder.size(); ++i) out += Row(ladder[i], i);
  out += "\nIn all " + Print("%.1f", ladder[0].samples_per_s) + " to " +
         Print("%.1f", top.samples_per_s) + " samples/s, " +
         Times(top.samples_per_s / ladder[0].samples_per_s) +
         ", at the top with `" + top.settings.Text() + "`.\n";
  return out;
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
