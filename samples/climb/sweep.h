// Sweep: the best of all combinations of what can be set.
#pragma once

#include <absl/status/statusor.h>

#include <vector>

#include "measure/bench.h"
#include "measure/grid.h"
#include "measure/settings.h"

namespace climb {

// Loader workers 0 to 2, intra-op threads 1 and 2, batch 16 to 64,
// channels_last, gradients set to None, fused optimizer step: 144 points.
const std::vector<measure::Factor>& Everything();

struct Swept {
  measure::Settings settings;
  std::vector<double> samples_per_s;  // of each run
  double median() const;
};

// Times all points once, `steps` steps each, then the better third again and
// longer, and so on until few are left, which are run in turn `rounds` times.
// The best one first.
// Errors: those of Bench.
absl::StatusOr<std::vector<Swept>> Sweep(
    measure::Bench& bench, const std::vector<measure::Factor>& factors,
    const measure::Settings& base, int steps, int rounds);

}  // namespace climb
