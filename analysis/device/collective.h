// Collective: one collective operation that this rank took part in.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>

#include "device/collective_names.h"
#include "ops/intervals.h"

namespace stepscope {

// Value of Collective::step for a collective outside all steps.
inline constexpr size_t kNoStep = static_cast<size_t>(-1);

struct Collective {
  CollectiveKind kind = CollectiveKind::kOther;
  Span moved = {};       // the kernel, or the range on a CPU-only run; includes
                         // the wait for the other ranks
  Span issued = {};      // the host call; empty if it was not recorded
  RowId kernel = kNone;  // kNone on a CPU-only run
  RowId op = kNone;      // the outermost op of the call
  RowId thread = kNone;  // the thread that issued it
  RowId communication = kNone;  // its metadata, in communications()
  int64_t bytes = -1;           // of this rank's input or output, whichever is
                                // larger; -1: unknown
  int64_t sequence = -1;        // number within its group; -1: unknown
  int32_t group_size = -1;      // ranks in its group; -1: unknown
  NameId group = 0;             // the ranks of its group as text, or its name
  size_t step = kNoStep;        // index into Steps::windows, by time of issue
  int64_t exposed_ns = 0;    // the part of `moved` that no computation overlaps
  bool integer = false;      // its elements are integers: counts or indices
  bool float32 = false;      // its elements are 32-bit floats
  bool in_backward = false;  // issued by an autograd thread or node
  bool gradient = false;     // an all-reduce of gradients
};

}  // namespace stepscope
