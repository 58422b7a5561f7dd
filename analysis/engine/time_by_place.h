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

// No report lists more modules or source lines.
inline constexpr size_t kPlacesListed = 50;

// By op, in ns: the time outside the ops in it, on the host and of the device
// work that it launches itself. 0 outside the steady steps; without steps all
// ops count.
struct OpTimes {
  std::vector<int64_t> host_ns;
  std::vector<int64_t> gpu_ns;
  // The parts of gpu_ns that are kernels of CUDA graphs, where the capture says
  // their operator, or their module (ops/captured_place.h).
  std::vector<int64_t> known_op_ns;
  std::vector<int64_t> known_module_ns;
  std::vector<bool> counts;
};
OpTimes TimesOf(const AnalysisContext& context);

// The times of each operator per steady step, in the order of SortOps. Without
// steps: totals over the whole Trace. `times` is that of the context, here and
// below.
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

// The same by the line of the program that called, from stacks.
std::vector<PlaceTime> TimeByLine(const AnalysisContext& context,
                                  const OpTimes& times);

// The means over the ranks' reports.
void MergePlaces(const std::vector<RankDigest>& ranks, Report& run);

}  // namespace stepscope
