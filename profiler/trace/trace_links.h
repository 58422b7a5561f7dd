// The links between rows of a Trace, each resolved in one pass over sorted
// tables. TraceBuilder::Build() calls them in the order they are declared:
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

// op.kind of the ranges that autograd's engine puts around its nodes: recorded
// as operators, and part of the backward pass like the nodes.
void MarkEngineRanges(std::span<Op> ops, std::span<const std::string> names);

// op.forward of backward nodes: the last op begun before it with its sequence
// number, on the thread it names where that thread is known.
void LinkForward(std::span<Op> ops, std::span<const Thread> threads);

// Finds the innermost op around moments of one thread after another. Moments of
// a thread must come in time order.
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

// work.call and work.op by correlation; where ids repeat, the latest call that
// began before the work.
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

// allocation.other: each release with the allocation it gives back, by device
// and address in time order.
void LinkReleases(std::span<Allocation> allocations);

}  // namespace stepscope
