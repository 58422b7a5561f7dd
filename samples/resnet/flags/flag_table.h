// The table of all flags of the sample: what each is called, takes and sets.
#pragma once

#include <optional>
#include <vector>

#include "flags/flags.h"
#include "flags/options.h"

namespace resnet {

// Flags that were given, where "not given" is not one of the values.
struct Given {
  std::optional<int> threads;
  std::optional<int> side;
  std::optional<int> steps;
};

inline constexpr int kSmallestSide = 16;

// The flags, which write to `options` and `given`; both must outlive them.
std::vector<Flag> FlagTable(Options* options, Given* given);

}  // namespace resnet
