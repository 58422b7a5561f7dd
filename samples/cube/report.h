// A measured cube, as tables for people and as files for programs.
#pragma once

#include <string>

#include "cube.h"

namespace cube {

// The points, the effects of each flag, the pairs that are not the product of
// both, and what was left out.
std::string ToText(const Measured& measured);

// One line per run: round, every factor's value, samples_per_s.
std::string ToCsv(const Measured& measured);

// The schema is samples/cube/README.md.
std::string ToJson(const Measured& measured);

}  // namespace cube
