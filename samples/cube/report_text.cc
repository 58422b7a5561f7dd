#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <numeric>
#include <optional>
#include <vector>

#include "report.h"

namespace cube {
namespace {

__attribute__((format(printf, 1, 2))) std::string Line(const char* format,
                                                       ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return std::string(text) + "\n";
}

std::string Text(const Ratio& ratio) {
  char text[64];
  std::snprintf(text, sizeof(text), "x %.2f (%.2f to %.2f)", ratio.value,
                ratio.interval.low, ratio.interval.high);
  return text;
}

std::string ValueText(const std::optional<Ratio>& ratio) {
  if (!ratio) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "x %.2f", ratio->value);
  return text;
}

std::string RangeText(const std::optional<Ratio>& ratio) {
  return ratio ? Text(*ratio) : "-";
}

// The crossed flags of a point alone; the others are the same for all.
std::string PointText(const Cube& cube, size_t point) {
  std::string text;
  for (size_t f = 0; f < cube.factors.size(); ++f) {
    const size_t level = cube.points[point].levels[f];
    if (cube.factors[f].levels[level] == "off") continue;
    text += (text.empty() ? "" : " ") + LevelText(cube.factors[f], level);
  }
  return text.empty() ? "(none of the flags)" : text;
}

// What replay says nothing of, in one line.
std::string SilenceText(const Expectation& expected) {
  if (!expected.why_not.empty()) {
    return "replay expects nothing: " + expected.why_not + "\n";
  }
  std::string flags;
  for (const std::string& flag : expected.unknown) {
    flags += (flags.empty() ? "" : ", ") + flag;
  }
  if (flags.empty()) return "";
  return "replay cannot express " + flags + ": no figure where that is set\n";
}

std::string PointsText(const Measured& measured) {
  const Cube& cube = measured.cube;
  std::vector<size_t> order(cube.points.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](size_t p) { return cube.MedianRate(p); });
  std::string text = Line(
      "%zu combinations, %zu rounds in turn; medians over "
      "the rounds\n",
      cube.points.size(), cube.rates[0].size());
  text += Line("%9s  %6s  %10s  %8s", "samples/s", "spread", "x baseline",
               "replay");
  for (size_t p : order) {
    text += Line("%9.1f  %4.1f %%  %10.2f  %8s  %s", cube.MedianRate(p),
                 100 * cube.Spread(p), cube.MedianRate(p) / cube.MedianRate(0),
                 ValueText(measured.expected.points[p]).c_str(),
                 PointText(cube, p).c_str());
  }
  return text + SilenceText(measured.expected);
}

std::string EffectsText(const Measured& measured) {
  const Cube& cube = measured.cube;
  std::string text = Line("\nwhat each does to the samples/s (95 %%)\n");
  text += Line("%-24s  %-22s  %-22s  %s", "", "at the baseline",
               "on average over all", "replay, at the baseline");
  for (const Effect& effect : Effects(cube)) {
    const measure::Factor& factor = cube.factors[effect.factor];
    text +=
        Line("%-24s  %-22s  %-22s  %s", LevelText(factor, effect.level).c_str(),
             effect.at_baseline_known ? Text(effect.at_baseline).c_str() : "-",
             Text(effect.on_average).c_str(),
             RangeText(measured.ExpectedAlone(effect)).c_str());
  }
  return text;
}

std::string Name(const Cube& cube, const Pair& pair) {
  return LevelText(cube.factors[pair.first.factor], pair.first.level) +
         " with " +
         LevelText(cube.factors[pair.second.factor], pair.second.level);
}

// "alone x 1.50 and x 0.80, product x 1.20".
std::string AloneText(const Pair& pair) {
  const double first = pair.first.on_average.value;
  const double second = pair.second.on_average.value;
  char text[96];
  std::snprintf(text, sizeof(text), "alone x %.2f and x %.2f, product x %.2f",
                first, second, first * second);
  return text;
}

// `expected`: the same pair as replay has it; nullptr if it does not.
std::string NamedText(const Cube& cube, const Pair& pair,
                      const Pair* expected) {
  std::string text =
      Name(cube, pair) + ": " + TogetherText(pair.together) + "\n" +
      Line("   %s; together %s; together / product %s", AloneText(pair).c_str(),
           Text(pair.both).c_str(), Text(pair.beyond_product).c_str());
  if (expected == nullptr) return text + "   replay: -\n";
  return text +
         Line("   replay: %s; together x %.2f; together / product x %.2f",
              AloneText(*expected).c_str(), expected->both.value,
              expected->beyond_product.value);
}

std::string PairsText(const Measured& measured) {
  const Cube& cube = measured.cube;
  const std::vector<Pair> pairs = Pairs(cube);
  const std::vector<Pair> expected = Pairs(AsCube(measured.expected, cube));
  if (pairs.empty()) return "";
  std::string named, others;
  size_t count = 0;
  for (const Pair& pair : pairs) {
    const Pair* replayed = SamePair(expected, pair);
    if (pair.together != Together::kAsExpected) {
      ++count;
      named += NamedText(cube, pair, replayed);
      continue;
    }
    others +=
        Line("%-40s  %-22s  %s", Name(cube, pair).c_str(),
             Text(pair.beyond_product).c_str(),
             replayed == nullptr ? "-"
                                 : ValueText(replayed->beyond_product).c_str());
  }
  std::string text =
      Line("\n%zu of %zu pairs are not the product of both, beyond the noise",
           count, pairs.size());
  if (!named.empty()) text += "\n" + named;
  if (!others.empty()) {
    text += Line("\n%-40s  %-22s  %s", count == 0 ? "pairs" : "the other pairs",
                 "together / product", "replay") +
            others;
  }
  return text;
}

}  // namespace

std::string ToText(const Measured& measured) {
  std::string text =
      PointsText(measured) + EffectsText(measured) + PairsText(measured);
  if (!measured.left_out.empty()) {
    text += Line("\nleft out: %zu combinations, as the first: %s: %s",
                 measured.left_out.size(),
                 measured.left_out[0].settings.Text().c_str(),
                 measured.left_out[0].why.c_str());
  }
  return text;
}

}  // namespace cube
