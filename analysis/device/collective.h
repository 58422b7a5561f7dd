// Collective: one collective operation that a rank took part in.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>

#include "device/collective_names.h"
#include "ops/intervals.h"

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

}  // namespace stepscope
