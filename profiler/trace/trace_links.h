// The links between the rows of a Trace, each resolved in one pass over sorted
// tables. TraceBuilder::Build() calls these functions in the order of their
// declaration, because later ones read what earlier ones wrote.
#pragma once

#include <stepscope/event.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace stepscope {

// Sets op.parent to the innermost op on the same thread that encloses the op. A
// child may end `tolerance_ns` after its parent. REQUIRES: ops are sorted by
// begin, outer ops first.
void LinkParents(std::span<Op> ops, size_t thread_count, int64_t tolerance_ns);

// Sets op.kind of the ranges that autograd's engine opens around its nodes.
// They arrive as operators, but belong to the backward pass. A range without a
// sequence number gets that of its first node, and its forward_thread.
void MarkEngineRanges(std::span<Op> ops, std::span<const std::string> names);

// Sets op.forward of backward nodes to the latest earlier op with the same
// sequence number, on the node's forward_thread if that is known.
void LinkForward(std::span<Op> ops, std::span<const Thread> threads);

// Finds the innermost op around a moment on a thread. Callers must ask for the
// moments of one thread in time order, which makes each answer amortised O(1).
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

// Finds the call that launched a device activity, by correlation id. If several
// calls have the id, it is the latest one that began before the activity.
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

// Sets allocation.other: pairs each release with the allocation that it frees,
// by device and address in time order.
void LinkReleases(std::span<Allocation> allocations);

}  // namespace stepscope
