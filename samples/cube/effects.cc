#include "effects.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "verdict.h"

namespace cube {
namespace {

using measure::Interval;

constexpr double kConfidence = 0.95;

// A weighted sum of the points' logarithms.
using Weights = std::map<size_t, double>;

// The means over the rounds, and how large the noise of one run is.
struct Fit {
  std::vector<double> mean;  // of log(rate), per point
  double variance = 0;
  double freedom = 0;
  double rounds = 0;
};

Fit FitModel(const Cube& cube) {
  const size_t points = cube.points.size();
  const size_t rounds = points == 0 ? 0 : cube.rates[0].size();
  Fit fit{.mean = std::vector<double>(points, 0),
          .rounds = static_cast<double>(rounds)};
  std::vector<double> round_mean(rounds, 0);
  double mean = 0;
  const double runs = static_cast<double>(points * rounds);
  for (size_t p = 0; p < points; ++p) {
    for (size_t r = 0; r < rounds; ++r) {
      const double rate = std::log(cube.rates[p][r]);
      fit.mean[p] += rate / static_cast<double>(rounds);
      round_mean[r] += rate / static_cast<double>(points);
      mean += rate / runs;
    }
  }
  for (size_t p = 0; p < points; ++p) {
    for (size_t r = 0; r < rounds; ++r) {
      const double rest =
          std::log(cube.rates[p][r]) - fit.mean[p] - round_mean[r] + mean;
      fit.variance += rest * rest;
    }
  }
  fit.freedom = static_cast<double>(points - 1) * (fit.rounds - 1);
  if (fit.freedom > 0) fit.variance /= fit.freedom;
  return fit;
}

Ratio RatioOf(const Fit& fit, const Weights& weights, double factor) {
  double value = 0, squares = 0;
  for (const auto& [point, weight] : weights) {
    value += weight * fit.mean[point];
    squares += weight * weight;
  }
  const double half =
      fit.freedom > 0 ? factor * std::sqrt(squares * fit.variance / fit.rounds)
                      : std::numeric_limits<double>::infinity();
  return {std::exp(value), {std::exp(value - half), std::exp(value + half)}};
}

// Points by their levels.
using Places = std::map<std::vector<size_t>, size_t>;

Places PlacesOf(const Cube& cube) {
  Places places;
  for (size_t p = 0; p < cube.points.size(); ++p) {
    places[cube.points[p].levels] = p;
  }
  return places;
}

// A factor and one of its levels.
using Change = std::pair<size_t, size_t>;

// All levels but the first ones.
std::vector<Change> Changes(const Cube& cube) {
  std::vector<Change> changes;
  for (size_t f = 0; f < cube.factors.size(); ++f) {
    for (size_t level = 1; level < cube.factors[f].levels.size(); ++level) {
      changes.emplace_back(f, level);
    }
  }
  return changes;
}

// A corner of a contrast: levels of some factors, and its sign.
struct Corner {
  std::vector<Change> levels;
  double sign = 1;
};

// What all effects of a cube are computed from.
struct Model {
  explicit Model(const Cube& measured)
      : cube(measured),
        fit(FitModel(measured)),
        places(PlacesOf(measured)),
        single(measure::StudentFactor(kConfidence, fit.freedom)) {}

  // The mean of the corners' sum, over all points with the first corner's
  // levels whose other corners are there, too. `at_baseline`: only over the
  // one at which all other factors have their first level. Empty if there is
  // none.
  Weights Contrast(const std::vector<Corner>& corners, bool at_baseline) const;

  Ratio Average(const std::vector<Corner>& corners) const {
    return RatioOf(fit, Contrast(corners, false), single);
  }

  const Cube& cube;
  const Fit fit;
  const Places places;
  const double single;  // half an interval / the standard error
};

// The points that are `point` with each corner's levels; empty if one of them
// is not there, or if `point` has not the first corner's.
std::vector<size_t> CornersAt(const Places& places, const measure::Point& point,
                              const std::vector<Corner>& corners) {
  std::vector<size_t> found;
  for (const Corner& corner : corners) {
    std::vector<size_t> levels = point.levels;
    for (const auto& [factor, level] : corner.levels) levels[factor] = level;
    const auto at = places.find(levels);
    if (at == places.end()) return {};
    if (found.empty() && levels != point.levels) return {};
    found.push_back(at->second);
  }
  return found;
}

Weights Model::Contrast(const std::vector<Corner>& corners,
                        bool at_baseline) const {
  Weights weights;
  double count = 0;
  for (const measure::Point& point : cube.points) {
    std::vector<size_t> others = point.levels;
    for (const auto& [factor, level] : corners[0].levels) others[factor] = 0;
    const bool is_baseline =
        std::ranges::all_of(others, [](size_t level) { return level == 0; });
    if (at_baseline && !is_baseline) continue;
    const std::vector<size_t> found = CornersAt(places, point, corners);
    for (size_t i = 0; i < found.size(); ++i) {
      weights[found[i]] += corners[i].sign;
    }
    count += found.empty() ? 0 : 1;
  }
  for (auto& [place, weight] : weights) weight /= count;
  return weights;
}

// A pair without its verdict, and the weights of what is beyond the product.
struct Four {
  Pair pair;
  Weights beyond;
};

Four FourOf(const Model& model, Change a, Change b) {
  const Change no_a{a.first, 0}, no_b{b.first, 0};
  const Corner both{{a, b}, 1}, first{{a, no_b}, 1}, second{{no_a, b}, 1};
  const Corner none{{no_a, no_b}, -1};
  Four four;
  four.beyond = model.Contrast(
      {both, {first.levels, -1}, {second.levels, -1}, {none.levels, 1}}, false);
  four.pair.first = {.factor = a.first,
                     .level = a.second,
                     .at_baseline = {},
                     .on_average = model.Average({first, none})};
  four.pair.second = {.factor = b.first,
                      .level = b.second,
                      .at_baseline = {},
                      .on_average = model.Average({second, none})};
  four.pair.both = model.Average({both, none});
  return four;
}

bool SameChange(const Effect& a, const Effect& b) {
  return a.factor == b.factor && a.level == b.level;
}

}  // namespace

double Cube::MedianRate(size_t point) const {
  return measure::Median(rates[point]);
}

double Cube::Spread(size_t point) const {
  return (measure::Quantile(rates[point], 5.0 / 6) -
          measure::Quantile(rates[point], 1.0 / 6)) /
         2 / MedianRate(point);
}

std::vector<Effect> Effects(const Cube& cube) {
  if (cube.points.size() < 2) return {};
  const Model model(cube);
  std::vector<Effect> effects;
  for (const Change& change : Changes(cube)) {
    const std::vector<Corner> corners = {{{change}, 1},
                                         {{{change.first, 0}}, -1}};
    const Weights average = model.Contrast(corners, false);
    if (average.empty()) continue;
    const Weights baseline = model.Contrast(corners, true);
    effects.push_back(
        {.factor = change.first,
         .level = change.second,
         .at_baseline = RatioOf(model.fit, baseline, model.single),
         .on_average = RatioOf(model.fit, average, model.single),
         .at_baseline_known = !baseline.empty()});
  }
  return effects;
}

std::vector<Pair> Pairs(const Cube& cube) {
  if (cube.points.size() < 2) return {};
  const Model model(cube);
  std::vector<Four> fours;
  for (const auto& [f, l] : Changes(cube)) {
    for (const auto& [g, m] : Changes(cube)) {
      if (g <= f) continue;
      Four four = FourOf(model, {f, l}, {g, m});
      if (!four.beyond.empty()) fours.push_back(std::move(four));
    }
  }
  if (fours.empty()) return {};
  const double all = measure::StudentFactor(
      1 - (1 - kConfidence) / static_cast<double>(fours.size()),
      model.fit.freedom);
  std::vector<Pair> pairs;
  for (Four& four : fours) {
    four.pair.beyond_product = RatioOf(model.fit, four.beyond, all);
    four.pair.together = Judge(four.pair);
    pairs.push_back(std::move(four.pair));
  }
  std::ranges::stable_sort(pairs, std::ranges::greater(), [](const Pair& pair) {
    return std::abs(std::log(pair.beyond_product.value));
  });
  return pairs;
}

const Pair* SamePair(const std::vector<Pair>& pairs, const Pair& pair) {
  const auto same = std::ranges::find_if(pairs, [&](const Pair& other) {
    return SameChange(other.first, pair.first) &&
           SameChange(other.second, pair.second);
  });
  return same == pairs.end() ? nullptr : &*same;
}

std::string LevelText(const measure::Factor& factor, size_t level) {
  const std::string& value = factor.levels[level];
  if (value == "off") return "without " + factor.flag;
  return value == "on" ? factor.flag : factor.flag + " " + value;
}

}  // namespace cube
