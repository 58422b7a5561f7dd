// The time of a step by operator, and by module and source line of the program
// for recordings that have them. Functions without state.
#pragma once

#include <stepscope/ranks.h>
#include <stepscope/report.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "context/analysis_context.h"

namespace stepscope {

// The maximum number of modules, and of source lines, in a report.
inline constexpr size_t kPlacesListed = 50;

// Self times by row of ops(), in ns: host time without child ops, and the time
// of the device work that the op launches itself. 0 outside the steady steps;
// without steps all ops count.
struct OpTimes {
  std::vector<int64_t> host_ns;
  std::vector<int64_t> gpu_ns;
  // The parts of gpu_ns that are kernels of CUDA graphs whose captured operator
  // (or module) is known (ops/captured_place.h).
  std::vector<int64_t> known_op_ns;
  std::vector<int64_t> known_module_ns;
  std::vector<bool> counts;
};
OpTimes TimesOf(const AnalysisContext& context);

// The times of each operator per steady step, in the order of SortOps. Without
// steps: totals over the whole Trace. Here and below, `times` must be
// TimesOf(context).
std::vector<TopOp> OpsByTime(const AnalysisContext& context,
                             const OpTimes& times);

// Largest first: by the device's time if `has_gpu`, then by self time.
void SortOps(std::vector<TopOp>& ops, bool has_gpu);

// Every module whose forward pass was recorded, largest self time first (of the
// GPU where there is one). Operators of the backward pass belong to the module
// of their forward operator. Without steps: totals over the whole Trace. At
// most `most` of them.
std::vector<PlaceTime> TimeByModule(const AnalysisContext& context,
                                    const OpTimes& times,
                                    size_t most = kPlacesListed);

// The same by source line of the program, from the stacks of the operators, or
// from Python frames, whose lines are those at which functions begin.
std::vector<PlaceTime> TimeByLine(const AnalysisContext& context,
                                  const OpTimes& times);

// Sets modules and lines of `run` to the means over the ranks' reports.
void MergePlaces(const std::vector<RankDigest>& ranks, Report& run);

}  // namespace stepscope
