// From slots to rows: what a closed window holds becomes ops, ranges,
// allocations and communications of a Trace.
//
// A pure function of its input: no state, no LibTorch, nothing read but the
// slots and the names they point to.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/slot.h>
#include <stepscope/trace_builder.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace stepscope {

// Turns return addresses (innermost first) into frames, "file(line): function"
// each. Called while a window is decoded, on that thread.
using Symbolizer = std::function<std::vector<std::vector<std::string>>(
    std::span<const std::vector<uint64_t>> stacks)>;

// One thread's part of a window.
struct SlotThread {
  int64_t tid = 0;
  uint64_t torch_thread = 0;
  std::string name;
  std::vector<std::span<const Slot>> chunks;  // in the order they were written
  // Operators still open at the end: their first slots and keys.
  std::vector<std::pair<const Slot*, const void*>> open;
};

struct SlotLog {
  int64_t pid = 0;
  Ticks closed = 0;  // operators that never ended are ended here
  std::vector<SlotThread> threads;
};

// What a decoder met that should not be there.
struct DecodeResult {
  int64_t bad_records = 0;      // kinds or sizes that make no sense
  int64_t unfinished = 0;       // operators still open when the window closed
  int64_t ended_elsewhere = 0;  // operators another thread ended
};

// Adds the rows of kinds whose meaning only their collector knows. Called while
// a window is decoded, on that thread.
using SlotDecoder = std::function<void(
    const SlotLog& log, const ClockMap& clock, TraceBuilder& builder)>;

// Adds all rows to the builder. REQUIRES: every kOp's name is still alive.
DecodeResult DecodeSlots(const SlotLog& log, const ClockMap& clock,
                         const Symbolizer& symbolize, TraceBuilder& builder);

}  // namespace stepscope
