// MeasureCube: every combination of some flags, timed in turn, beside what
// replay of the baseline's recording expects of each.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "effects.h"
#include "expectation.h"
#include "measure/bench.h"
#include "options.h"

namespace cube {

// A combination that the program refuses.
struct LeftOut {
  measure::Settings settings;
  std::string why;
};

struct Measured {
  Cube cube;  // its first point is the baseline
  std::vector<LeftOut> left_out;
  Expectation expected;

  // What replay expects of `effect` at the baseline; nothing if that point is
  // not there, or replay does not know.
  std::optional<Ratio> ExpectedAlone(const Effect& effect) const;
};

// Whether the program takes these arguments.
using Accepts =
    std::function<absl::Status(const std::vector<std::string>& arguments)>;

// Errors: those of Bench; InvalidArgument, before anything is measured, if
// fewer than two combinations are accepted, or the baseline is not: the first
// values of all flags.
absl::StatusOr<Measured> MeasureCube(measure::Bench& bench,
                                     const Options& options,
                                     const Accepts& accepts);

// `resnet --sweep WORDS...`: measures this very program. Returns an exit code:
// 0; 1 something failed; 2 the words make no sense; 3 the time is over, the
// same command goes on.
int SweepMain(const std::vector<std::string>& words, const Accepts& accepts);

}  // namespace cube
