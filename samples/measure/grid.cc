#include "grid.h"

#include <utility>

namespace measure {
namespace {

constexpr char kOff[] = "off";
constexpr char kOn[] = "on";

}  // namespace

Settings At(const Factor& factor, size_t level, Settings settings) {
  const std::string& value = factor.levels[level];
  if (value == kOff) {
    settings.Drop(factor.flag);
  } else {
    settings.Set(factor.flag, value == kOn ? "" : value);
  }
  return settings;
}

size_t LevelOf(const Factor& factor, const Settings& settings) {
  for (size_t level = 0; level < factor.levels.size(); ++level) {
    if (At(factor, level, settings) == settings) return level;
  }
  return 0;
}

std::vector<Point> Cross(const std::vector<Factor>& factors,
                         const Settings& base) {
  std::vector<Point> points = {{{}, base}};
  for (const Factor& factor : factors) {
    std::vector<Point> crossed;
    for (const Point& point : points) {
      for (size_t level = 0; level < factor.levels.size(); ++level) {
        Point next{point.levels, At(factor, level, point.settings)};
        next.levels.push_back(level);
        crossed.push_back(std::move(next));
      }
    }
    points = std::move(crossed);
  }
  return points;
}

}  // namespace measure
