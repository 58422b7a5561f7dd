// What a host thread did at every nanosecond: a list of segments without gaps,
// each with the innermost op and one cause.
//
// Where the training thread has no op open and an autograd thread runs
// backward nodes for it, the segment is the autograd thread's: the training
// thread only waits for it inside backward().
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "timeline/causes.h"

namespace stepscope {

struct Segment {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  RowId op = kNone;     // the innermost op; kNone between ops
  RowId range = kNone;  // the loader range it lies in
  Cause cause = Cause::kHostCode;
  int64_t length() const { return end_ns - begin_ns; }
};

// Segments of `thread` over `window`, split further where a loader range, the
// garbage collector, communication, a wait or the profiler takes precedence.
// Adjacent segments of one op, range and cause are one.
std::vector<Segment> HostTimeline(const Trace& trace, const OpTree& tree,
                                  RowId thread, Span window);

// Time that a cause claims for itself.
struct Claim {
  Span span;
  RowId range = kNone;  // of kData claims
};
// Claims in time order without overlap: where two do, the earlier keeps it.
std::vector<Claim> Disjoint(std::vector<Claim> claims);
// Gives what lies inside the disjoint `claims` the cause, splitting segments.
// What `spare` holds is lost; its memory is used.
void Overlay(std::vector<Segment>& segments, const std::vector<Claim>& claims,
             Cause cause, std::vector<Segment>& spare);

// The threads, other than `thread`, that run backward nodes.
std::vector<RowId> AutogradThreads(const Trace& trace, RowId thread);

}  // namespace stepscope
