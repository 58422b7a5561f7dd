#include "timeline/timeline.h"

#include <algorithm>
#include <string_view>

#include "ops/loader_spans.h"

namespace stepscope {
namespace {

// Returns the innermost open op at every moment. Child ops that end after their
// parent, which happens in files with rounded times, are clipped to the parent.
std::vector<Segment> OpSegments(const Trace& trace, const OpTree& tree,
                                RowId thread, Span window) {
  struct Open {
    RowId op;
    int64_t end_ns;
  };
  std::vector<Segment> segments;
  // The begin and the end of an op start at most one segment each.
  segments.reserve(2 * tree.of_thread(thread).size() + 1);
  std::vector<Open> open;
  int64_t now = window.begin_ns;
  const auto advance = [&](int64_t to, RowId op) {
    to = std::min(to, window.end_ns);
    if (to <= now) return;
    segments.push_back({.begin_ns = now, .end_ns = to, .op = op});
    now = to;
  };
  const auto close_until = [&](int64_t time) {
    while (!open.empty() && open.back().end_ns <= time) {
      advance(open.back().end_ns, open.back().op);
      open.pop_back();
    }
  };
  for (RowId row : tree.of_thread(thread)) {
    const Op& op = trace.ops()[row];
    if (op.begin_ns >= window.end_ns) break;
    if (op.end_ns <= window.begin_ns || op.end_ns <= op.begin_ns) continue;
    close_until(op.begin_ns);
    advance(op.begin_ns, open.empty() ? kNone : open.back().op);
    const int64_t limit = open.empty() ? window.end_ns : open.back().end_ns;
    if (std::min(op.end_ns, limit) > now) {
      open.push_back({row, std::min(op.end_ns, limit)});
    }
  }
  close_until(window.end_ns);
  advance(window.end_ns, kNone);
  return segments;
}

// Replaces the segments without an op by the same part of `other`. Both cover
// the same window. Needed because the training thread has no op open inside
// backward() while the autograd thread computes.
std::vector<Segment> FillGaps(const std::vector<Segment>& segments,
                              const std::vector<Segment>& other) {
  std::vector<Segment> filled;
  filled.reserve(segments.size() + other.size());
  size_t j = 0;
  for (const Segment& segment : segments) {
    if (segment.op != kNone) {
      filled.push_back(segment);
      continue;
    }
    while (j < other.size() && other[j].end_ns <= segment.begin_ns) ++j;
    for (size_t k = j; k < other.size() && other[k].begin_ns < segment.end_ns;
         ++k) {
      Segment part = other[k];
      part.begin_ns = std::max(part.begin_ns, segment.begin_ns);
      part.end_ns = std::min(part.end_ns, segment.end_ns);
      filled.push_back(part);
    }
  }
  return filled;
}

// False for the ranges that DDP opens around whole passes: they contain the
// model's ops.
bool IsCollectiveWait(std::string_view name) {
  return !name.starts_with("DistributedDataParallel") &&
         !name.starts_with("DataParallel") &&
         !name.starts_with("torch.distributed.ddp.");  // the reducer's code
}

std::vector<int64_t> EndsOf(const std::vector<Span>& spans) {
  std::vector<int64_t> ends;
  ends.reserve(spans.size());
  for (const Span& span : spans) ends.push_back(span.end_ns);
  std::ranges::sort(ends);
  return ends;
}

// True if the pause ends when one of `ends` does, so that it was a wait for it.
// Needed because FSDP2 waits inside a backward node that may also run long
// Python code during a collective.
bool EndsWithOneOf(const std::vector<int64_t>& ends, const Segment& pause) {
  // When one thread wakes the other, either may lose its core for a time slice
  // (3 ms by default, sched_base_slice of Linux). For a short pause that slack
  // would match nearly any end, so it is also limited to a tenth of the pause.
  constexpr int64_t kSliceNs = 3'000'000;
  const int64_t slack = std::min(kSliceNs, pause.length() / 10);
  const auto next = std::ranges::lower_bound(ends, pause.end_ns - slack);
  return next != ends.end() && *next <= pause.end_ns + slack;
}

}  // namespace

// Binary search, because this is called once per step on the whole recording's
// timeline.
std::vector<Segment> Slice(const std::vector<Segment>& timeline, Span window) {
  std::vector<Segment> part;
  for (auto it = std::ranges::upper_bound(timeline, window.begin_ns, {},
                                          &Segment::end_ns);
       it != timeline.end() && it->begin_ns < window.end_ns; ++it) {
    part.push_back(*it);
    part.back().begin_ns = std::max(it->begin_ns, window.begin_ns);
    part.back().end_ns = std::min(it->end_ns, window.end_ns);
  }
  if (part.empty() && window.length() > 0) {
    part.push_back(
        {window.begin_ns, window.end_ns, kNone, kNone, Cause::kUnknown});
  }
  return part;
}

// Segments and claims are both in time order, so one pass over both splits the
// segments at the claims' edges.
void Overlay(std::vector<Segment>& segments, const std::vector<Claim>& claims,
             Cause cause, std::vector<Segment>& spare) {
  if (claims.empty()) return;
  std::vector<Segment>& result = spare;
  result.clear();
  result.reserve(segments.size() + 2 * claims.size());
  size_t j = 0;
  for (Segment segment : segments) {
    while (j < claims.size() && claims[j].span.end_ns <= segment.begin_ns) ++j;
    for (size_t k = j;
         k < claims.size() && claims[k].span.begin_ns < segment.end_ns; ++k) {
      const Span& claim = claims[k].span;
      if (claim.begin_ns > segment.begin_ns) {
        Segment before = segment;
        before.end_ns = claim.begin_ns;
        result.push_back(before);
        segment.begin_ns = claim.begin_ns;
      }
      // Keeps its op: a claim says why the time is spent, not what is open.
      Segment inside = segment;
      inside.end_ns = std::min(segment.end_ns, claim.end_ns);
      inside.cause = cause;
      if (cause == Cause::kData) inside.range = claims[k].range;
      if (inside.length() > 0) result.push_back(inside);
      segment.begin_ns = inside.end_ns;
    }
    if (segment.length() > 0) result.push_back(segment);
  }
  segments.swap(result);
}

std::vector<Claim> Disjoint(std::vector<Claim> claims) {
  std::ranges::stable_sort(claims, {},
                           [](const Claim& c) { return c.span.begin_ns; });
  std::vector<Claim> result;
  for (Claim claim : claims) {
    if (!result.empty()) {
      claim.span.begin_ns =
          std::max(claim.span.begin_ns, result.back().span.end_ns);
    }
    if (claim.span.length() > 0) result.push_back(claim);
  }
  return result;
}

// Threads of the backward pass are known by the nodes they run; their names
// differ from version to version.
std::vector<RowId> AutogradThreads(const OpTree& tree, RowId thread) {
  std::vector<RowId> threads;
  for (RowId row : tree.backward_threads()) {
    if (row != thread) threads.push_back(row);
  }
  return threads;
}

std::vector<Segment> HostTimeline(const Trace& trace, const OpTree& tree,
                                  RowId thread, Span window) {
  if (thread == kNone || window.length() <= 0) return {};
  // The timeline is built in layers: first what the threads execute, then what
  // takes precedence over it (the profiler, communication, the garbage
  // collector, data).
  std::vector<Segment> segments = OpSegments(trace, tree, thread, window);
  std::vector<bool> ours(trace.threads().size());
  ours[thread] = true;
  // Autograd threads (one per device) rarely run at once; where they do, the
  // first one counts.
  for (RowId other : AutogradThreads(tree, thread)) {
    ours[other] = true;
    segments = FillGaps(segments, OpSegments(trace, tree, other, window));
  }
  // Where no ops were recorded, the thread may run ops or anything else.
  const bool knows_ops = !trace.ops().empty();
  for (Segment& segment : segments) {
    if (!knows_ops) segment.cause = Cause::kUnknown;
    if (segment.op == kNone) continue;
    if (tree.traits(segment.op).communication) {
      segment.cause = Cause::kCommunication;
    } else {
      segment.cause =
          tree.computes(segment.op) ? Cause::kCompute : Cause::kDispatch;
    }
  }

  std::vector<Claim> profiler, communication, gc, data;
  std::vector<Span> elsewhere;
  for (const Overhead& row : trace.overheads()) {
    if (row.thread == thread) {
      profiler.push_back({{row.begin_ns, row.end_ns}, kNone});
    }
  }
  for (const Communication& row : trace.communications()) {
    if (row.thread != kNone && ours[row.thread]) {
      communication.push_back({{row.begin_ns, row.end_ns}, kNone});
    }
  }
  const TakesBatch takes_batch(trace);
  const std::span<const Range> ranges = trace.ranges();
  for (RowId row = 0; row < ranges.size(); ++row) {
    const Range& range = ranges[row];
    if (range.thread == kNone) continue;
    if (!ours[range.thread]) {
      if (range.kind == RangeKind::kCollective &&
          IsCollectiveWait(trace.name(range.name))) {
        elsewhere.push_back({range.begin_ns, range.end_ns});
      }
      continue;
    }
    const Claim claim{{range.begin_ns, range.end_ns}, row};
    const std::string_view name = trace.name(range.name);
    if (range.kind == RangeKind::kCollective && IsCollectiveWait(name)) {
      communication.push_back(claim);
    } else if (name == "Python GC") {
      gc.push_back(claim);
    } else if (range.thread == thread && takes_batch(range)) {
      data.push_back(claim);
    }
  }
  // Inside backward() the training thread has no op open while it waits for a
  // collective of another thread (gloo's, NCCL's). A pause during such a
  // collective counts as a wait for it if it is longer than the pauses of
  // framework code.
  const std::vector<int64_t> ends = EndsOf(elsewhere);
  std::vector<Span> pauses;
  for (const Segment& segment : segments) {
    if (segment.length() > kFrameworkGapNs &&
        (segment.op == kNone ||
         (segment.cause == Cause::kDispatch && EndsWithOneOf(ends, segment)))) {
      pauses.push_back({segment.begin_ns, segment.end_ns});
    }
  }
  for (const Span& wait :
       Intersect(Merge(std::move(pauses)), Merge(std::move(elsewhere)))) {
    communication.push_back({wait, kNone});
  }
  // Later overlays overwrite earlier ones, so they come in rising precedence.
  std::vector<Segment> spare;
  Overlay(segments, Disjoint(std::move(profiler)), Cause::kProfiler, spare);
  Overlay(segments, Disjoint(std::move(communication)), Cause::kCommunication,
          spare);
  Overlay(segments, Disjoint(std::move(gc)), Cause::kGc, spare);
  Overlay(segments, Disjoint(std::move(data)), Cause::kData, spare);

  // Overlays also cut segments at claims that changed nothing. Joins the pieces
  // again, because most rules look at whole segments.
  size_t joined = 0;
  for (const Segment& segment : segments) {
    Segment* last = joined > 0 ? &segments[joined - 1] : nullptr;
    if (last != nullptr && last->op == segment.op &&
        last->range == segment.range && last->cause == segment.cause) {
      last->end_ns = segment.end_ns;
    } else {
      segments[joined++] = segment;
    }
  }
  segments.resize(joined);
  return segments;
}

}  // namespace stepscope
