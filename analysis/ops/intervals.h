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
// Like Merge(), but also joins spans that are at most `gap_ns` apart.
std::vector<Span> MergeAcross(std::vector<Span> spans, int64_t gap_ns);

// REQUIRES for all functions below: list arguments are disjoint.

// Intersect() returns what lies in both lists, Subtract() what lies in `a` but
// not in `b`. Both results are disjoint.
std::vector<Span> Intersect(std::span<const Span> a, std::span<const Span> b);
std::vector<Span> Subtract(std::span<const Span> a, std::span<const Span> b);

// Returns the parts of `a` inside `window`.
std::vector<Span> Clip(std::span<const Span> a, Span window);

// Returns the total length in ns: Length() of all of `a`, LengthIn() of the
// parts of `a` inside `window`. LengthIn() finds the window by binary search,
// so calling it for many windows of a long list is cheap.
int64_t Length(std::span<const Span> a);
int64_t LengthIn(std::span<const Span> a, Span window);

// True if one of the spans contains `time_ns`. REQUIRES: the spans are sorted
// and disjoint.
bool Covers(std::span<const Span> a, int64_t time_ns);

}  // namespace stepscope
