#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <numeric>
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

std::string ExpectedText(const std::optional<double>& ratio) {
  if (!ratio) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "x %.2f", *ratio);
  return text;
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
    const std::optional<double> expected =
        p == 0 ? 1 : measured.ExpectedOf(cube.points[p].settings);
    text += Line("%9.1f  %4.1f %%  %10.2f  %8s  %s", cube.MedianRate(p),
                 100 * cube.Spread(p), cube.MedianRate(p) / cube.MedianRate(0),
                 ExpectedText(expected).c_str(), PointText(cube, p).c_str());
  }
  return text;
}

std::string EffectsText(const Measured& measured) {
  const Cube& cube = measured.cube;
  std::string text = Line("\nwhat each does to the samples/s (95 %%)\n");
  text += Line("%-24s  %-22s  %-22s  %s", "", "at the baseline",
               "on average over all", "replay");
  for (const Effect& effect : Effects(cube)) {
    const measure::Factor& factor = cube.factors[effect.factor];
    const measure::Settings alone =
        measure::At(factor, effect.level, cube.points[0].settings);
    text +=
        Line("%-24s  %-22s  %-22s  %s", LevelText(factor, effect.level).c_str(),
             effect.at_baseline_known ? Text(effect.at_baseline).c_str() : "-",
             Text(effect.on_average).c_str(),
             ExpectedText(measured.ExpectedOf(alone)).c_str());
  }
  return text;
}

std::string PairsText(const Measured& measured) {
  const Cube& cube = measured.cube;
  const std::vector<Pair> pairs = Pairs(cube);
  if (pairs.empty()) return "";
  std::string text;
  size_t named = 0;
  for (const Pair& pair : pairs) {
    if (pair.together == Together::kAsExpected) continue;
    ++named;
    text += Line(
        "%s with %s: %s",
        LevelText(cube.factors[pair.first.factor], pair.first.level).c_str(),
        LevelText(cube.factors[pair.second.factor], pair.second.level).c_str(),
        TogetherText(pair.together));
    text += Line(
        "   alone x %.2f and x %.2f, product x %.2f; together %s; "
        "together / product %s",
        pair.first.on_average.value, pair.second.on_average.value,
        pair.first.on_average.value * pair.second.on_average.value,
        Text(pair.both).c_str(), Text(pair.beyond_product).c_str());
  }
  return Line(
             "\n%zu of %zu pairs are not the product of both, beyond the "
             "noise\n",
             named, pairs.size()) +
         text;
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
