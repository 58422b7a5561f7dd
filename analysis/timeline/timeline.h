// HostTimeline(): what a host thread did at every nanosecond, as a list of
// segments without gaps, each with the innermost op and one cause.
//
// While backward() runs, the training thread only waits for the autograd
// threads. So where it has no op open and an autograd thread runs backward
// nodes, the segment shows what the autograd thread does.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "timeline/causes.h"

namespace stepscope {

// A pause of at most 50 us between ops is framework code; longer ones are the
// program's own, or waits. Our own choice.
inline constexpr int64_t kFrameworkGapNs = 50'000;

struct Segment {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  RowId op = kNone;     // the innermost op; kNone between ops
  RowId range = kNone;  // the loader range that contains it, in ranges()
  Cause cause = Cause::kHostCode;
  int64_t length() const { return end_ns - begin_ns; }
};

// Returns the segments of `thread` in `window`, in time order. Ops compute or
// dispatch; data loading, the garbage collector, communication and the
// profiler, in this order of precedence, take their time from them. Adjacent
// segments of the same op, range and cause are joined. Empty if `thread` is
// kNone.
std::vector<Segment> HostTimeline(const Trace& trace, const OpTree& tree,
                                  RowId thread, Span window);

// Returns the part of a timeline that lies in `window`. If the timeline has
// nothing there, for example because the training thread is unknown, returns
// one segment of an unknown cause.
std::vector<Segment> Slice(const std::vector<Segment>& timeline, Span window);

// A span that belongs to one cause, whatever ops are open in it.
struct Claim {
  Span span;
  RowId range = kNone;  // the loader range of a kData claim
};
// Sorts claims and removes overlaps: an overlap stays with the claim that
// starts first.
std::vector<Claim> Disjoint(std::vector<Claim> claims);
// Gives `cause` to what lies inside `claims`, and splits segments where claims
// begin or end. `spare` is only reused memory; its contents are overwritten.
// REQUIRES: claims are disjoint, segments and claims in time order.
void Overlay(std::vector<Segment>& segments, const std::vector<Claim>& claims,
             Cause cause, std::vector<Segment>& spare);

// The threads other than `thread` that run autograd nodes.
std::vector<RowId> AutogradThreads(const OpTree& tree, RowId thread);

}  // namespace stepscope
