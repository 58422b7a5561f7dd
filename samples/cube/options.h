// Options: what `resnet --sweep` asks for.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "measure/grid.h"
#include "measure/settings.h"

namespace cube {

struct Options {
  // Flags with several values, parted by commas, in the order of their names.
  // The first value of each is the baseline.
  std::vector<measure::Factor> factors;
  measure::Settings base;  // the other flags: given to every run
  int rounds = 5;
  int steps = 24;
  int limit_s = 24 * 3600;
  std::string folder = "runs/cube";
  std::string csv;   // empty: none is written
  std::string json;  // the same
};

// Reads the words behind --sweep.
// Errors: InvalidArgument, as a sentence for the user.
absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& words);

}  // namespace cube
