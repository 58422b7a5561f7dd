// Grid: all combinations of some flags' values.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "settings.h"

namespace measure {

// A flag and the values it takes. Of a flag without a value they are "off" and
// "on".
struct Factor {
  std::string flag;
  std::vector<std::string> levels;
};

// `settings` with the flag of `factor` at `level`.
Settings At(const Factor& factor, size_t level, Settings settings);

// The level at which `settings` have the flag; the first one if they have not.
size_t LevelOf(const Factor& factor, const Settings& settings);

// One point for each combination of levels, the last factor changing fastest.
struct Point {
  std::vector<size_t> levels;  // of each factor
  Settings settings;
};
std::vector<Point> Cross(const std::vector<Factor>& factors,
                         const Settings& base);

}  // namespace measure
