// DecodeTorch(): turns the torch collector's slots into rows: ops with their
// arguments and stacks, allocations and communications. A pure function of its
// input, without LibTorch. It reads only the slots and the names that they
// point to.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/slot_walk.h>
#include <stepscope/trace_builder.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "torch_stack_decode.h"

namespace stepscope {

// Turns stacks of return addresses, innermost first, into stacks of frames,
// each "file(line): function". Called on the decoding thread.
using Symbolizer = std::function<std::vector<std::vector<std::string>>(
    std::span<const std::vector<uint64_t>> stacks)>;

// The data besides the slots that is needed to decode stacks.
struct TorchStacks {
  Symbolizer symbolize = {};  // empty: C++ stacks are left out
  PythonSamples python = {};
  StackSteps steps = {};
};

// Numbers of unusual records.
struct TorchDecodeResult {
  int64_t bad_records = 0;      // contents that make no sense
  int64_t unfinished = 0;       // operators still open when the window closed
  int64_t ended_elsewhere = 0;  // operators another thread ended
  StackCounts stacks = {};
};

// Adds all rows to the builder. REQUIRES: the names that kOpSlots point to are
// still alive.
TorchDecodeResult DecodeTorch(const SlotLog& log, const ClockMap& clock,
                              const TorchStacks& stacks, TraceBuilder& builder);

}  // namespace stepscope
