// The links between the rows of a Trace, each resolved in one pass over sorted
// tables. TraceBuilder::Build() calls these in the order of their declaration:
// later ones read what earlier ones wrote.
#pragma once

#include <stepscope/event.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace stepscope {

// op.parent: the innermost op on the same thread that encloses it; a child may
// outlast its parent by `tolerance_ns`. REQUIRES: ops sorted by begin, outer
// first.
void LinkParents(std::span<Op> ops, size_t thread_count, int64_t tolerance_ns);

// Sets op.kind of the scopes that autograd's engine opens around its nodes:
// they arrive as operators, and belong to the backward pass.
void MarkEngineRanges(std::span<Op> ops, std::span<const std::string> names);

// op.forward of backward nodes: the latest earlier op with the same sequence
// number, on the node's forward_thread where that is known.
void LinkForward(std::span<Op> ops, std::span<const Thread> threads);

// Finds the innermost op around a moment on a thread. Callers ask for the
// moments of one thread in time order, which keeps each answer amortised O(1).
class OpFinder {
 public:
  OpFinder(std::span<const Op> ops, size_t thread_count);
  // The innermost op with begin <= time < end on `thread`, or kNone.
  RowId At(RowId thread, int64_t time_ns);

 private:
  struct Cursor {
    std::vector<RowId> ops;
    size_t next = 0;
  };
  std::span<const Op> ops_;
  std::vector<Cursor> cursors_;
};

// Finds the call that launched a device activity, by correlation id; where ids
// repeat, the latest call that began before the activity.
class CallFinder {
 public:
  explicit CallFinder(std::span<const RuntimeCall> calls);
  RowId Of(int64_t correlation, int64_t begin_ns) const;

 private:
  struct Entry {
    int64_t correlation;
    int64_t begin_ns;
    RowId call;
    auto operator<=>(const Entry&) const = default;
  };
  std::vector<Entry> entries_;
};

// allocation.other: pairs each release with the allocation it frees, by device
// and address in time order.
void LinkReleases(std::span<Allocation> allocations);

}  // namespace stepscope
