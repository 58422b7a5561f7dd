// MeasureCube: every combination of some flags, timed in turn, beside what the
// report of the baseline expects of each.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "effects.h"
#include "measure/bench.h"
#include "options.h"

namespace cube {

// A combination that the program refuses.
struct LeftOut {
  measure::Settings settings;
  std::string why;
};

// The replay of the baseline's recording: samples per second with a change, as
// a multiple of those without.
struct Expected {
  measure::Settings settings;
  std::string says;  // finding, or "plan"
  double ratio = 1;
};

struct Measured {
  Cube cube;
  std::vector<LeftOut> left_out;
  std::vector<Expected> expected;

  // What replay expects of the point `settings`; nothing if no finding led
  // there.
  std::optional<double> ExpectedOf(const measure::Settings& settings) const;
};

// Whether the program takes these arguments.
using Accepts =
    std::function<absl::Status(const std::vector<std::string>& arguments)>;

// Errors: those of Bench; InvalidArgument, if fewer than two combinations are
// accepted.
absl::StatusOr<Measured> MeasureCube(measure::Bench& bench,
                                     const Options& options,
                                     const Accepts& accepts);

// `resnet --sweep WORDS...`: measures this very program. Returns an exit code:
// 0; 1 something failed; 2 the words make no sense; 3 the time is over, the
// same command goes on.
int SweepMain(const std::vector<std::string>& words, const Accepts& accepts);

}  // namespace cube
