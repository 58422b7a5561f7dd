// Span algebra over half-open [begin_ns, end_ns). Every function takes and
// gives lists; a list called "disjoint" is sorted and its spans neither touch
// nor overlap.
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

// The union of spans in any order, disjoint. Empty and reversed ones vanish.
std::vector<Span> Merge(std::vector<Span> spans);

// REQUIRES for all below: the arguments are disjoint lists.
std::vector<Span> Intersect(std::span<const Span> a, std::span<const Span> b);
std::vector<Span> Subtract(std::span<const Span> a, std::span<const Span> b);
std::vector<Span> Clip(std::span<const Span> a, Span window);
int64_t Length(std::span<const Span> a);
bool Covers(std::span<const Span> a, int64_t time_ns);
// The length of what lies inside `window`; logarithmic in what lies outside.
int64_t LengthIn(std::span<const Span> a, Span window);

}  // namespace stepscope
