// The table of all flags of the sample: name, value, help, and what each sets.
#pragma once

#include <optional>
#include <vector>

#include "flags/flags.h"
#include "flags/options.h"

namespace resnet {

// Flags whose values cannot express "not given".
struct Given {
  std::optional<int> threads;
  std::optional<int> side;
  std::optional<int> steps;
};

inline constexpr int kSmallestSide = 16;

// Returns the flags. They write to `options` and `given`, which must outlive
// them.
std::vector<Flag> FlagTable(Options* options, Given* given);

}  // namespace resnet
