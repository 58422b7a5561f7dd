// Collectives: every collective operation that one rank took part in, with the
// kernel that moved it (runs with a GPU) or the range that did (runs without),
// the host call that issued it, its size, and how much of it no computing
// covers.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "collective_names.h"
#include "intervals.h"
#include "op_traits.h"
#include "steps.h"

namespace stepscope {

inline constexpr size_t kNoStep = static_cast<size_t>(-1);

struct Collective {
  CollectiveKind kind = CollectiveKind::kOther;
  Span moved = {};       // the kernel, or the range on a CPU-only run
  Span issued = {};      // the host call; empty if it was not recorded
  RowId kernel = kNone;  // kNone on a CPU-only run
  RowId op = kNone;      // the outermost op of the call
  RowId thread = kNone;  // that issued it
  RowId communication = kNone;
  int64_t bytes = -1;  // of this rank's larger side; -1 if unknown
  int64_t sequence = -1;
  int32_t group_size = -1;
  NameId group = 0;        // the ranks of its group as text, else its name
  size_t step = kNoStep;   // of Steps::windows, by its issue
  int64_t exposed_ns = 0;  // not covered by computing
  bool integer = false;    // moves counts or indices
  bool in_backward = false;
  bool gradient = false;  // an all-reduce of gradients
};

// In order of `moved`. Collectives of a GPU run without a kernel (a world of
// one rank, a barrier) are left out.
std::vector<Collective> FindCollectives(const Trace& trace, const OpTree& tree,
                                        const Steps& steps);

// Means per steady step over the collectives that `wanted` picks.
struct CollectiveTotals {
  double count = 0;
  double bytes = 0;     // of those whose size is known
  double moved_ns = 0;  // while at least one was under way
  double exposed_ns = 0;
  double issue_ns = 0;  // host time of the calls
  bool all_sizes_known = true;
};
CollectiveTotals TotalsOf(const std::vector<Collective>& collectives,
                          const Steps& steps,
                          const std::function<bool(const Collective&)>& wanted);

}  // namespace stepscope
