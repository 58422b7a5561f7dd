// Expectation: what replay of the baseline's recording says of the other points
// of a cube, before they are measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "effects.h"
#include "measure/advice.h"

namespace cube {

struct Expectation {
  // Beside the points of the cube: samples per second as a multiple of the
  // baseline's, with the likely range. Nothing of a point that differs from the
  // baseline in a value that is `unknown`.
  std::vector<std::optional<Ratio>> points;
  // Values of flags that replay cannot express: "--bf16".
  std::vector<std::string> unknown;
  // Why replay says nothing of any point; empty if it does.
  std::string why_not;
};

// Replays the recording that lies beside `advice`, both of the first point of
// `cube`. The rates of `cube` are not looked at.
Expectation Expect(const measure::Advice& advice, const Cube& cube);

// The points with a figure, as if these had been measured, without noise: what
// Effects() and Pairs() make of them, replay expects. Intervals mean nothing.
Cube AsCube(const Expectation& expected, const Cube& cube);

}  // namespace cube
