// Interval arithmetic on half-open spans [begin_ns, end_ns), in nanoseconds
// since the epoch. Functions take and return lists of spans; a "disjoint" list
// is sorted, and its spans neither overlap nor touch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stepscope {

struct Span {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t length() const { return end_ns - begin_ns; }
  bool operator==(const Span&) const = default;
};

// Returns the union of `spans` as a disjoint list. `spans` may come in any
// order; empty and reversed spans are dropped. O(n log n), O(n) if sorted.
std::vector<Span> Merge(std::vector<Span> spans);
// The same, but spans that begin up to `gap_ns` behind another one become one.
std::vector<Span> MergeAcross(std::vector<Span> spans, int64_t gap_ns);

// REQUIRES for all functions below: list arguments are disjoint.

// What lies in both lists, and what lies in `a` but not in `b`; both disjoint.
std::vector<Span> Intersect(std::span<const Span> a, std::span<const Span> b);
std::vector<Span> Subtract(std::span<const Span> a, std::span<const Span> b);

// The parts of `a` inside `window`.
std::vector<Span> Clip(std::span<const Span> a, Span window);

// The total length in ns, of all of `a` or of its parts inside `window`.
// LengthIn finds the window by binary search, so many windows can be asked of
// a long list.
int64_t Length(std::span<const Span> a);
int64_t LengthIn(std::span<const Span> a, Span window);

// True if one of the spans contains `time_ns`.
bool Covers(std::span<const Span> a, int64_t time_ns);

}  // namespace stepscope
