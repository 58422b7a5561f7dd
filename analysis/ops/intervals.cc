#include "ops/intervals.h"

#include <algorithm>

namespace stepscope {

std::vector<Span> Merge(std::vector<Span> spans) {
  // Recorded tables are nearly always sorted; checking is cheaper than sorting.
  std::erase_if(spans, [](const Span& s) { return s.length() <= 0; });
  if (!std::ranges::is_sorted(spans, {}, &Span::begin_ns)) {
    std::ranges::sort(spans, {}, &Span::begin_ns);
  }
  size_t merged = 0;
  for (const Span& span : spans) {
    if (merged > 0 && span.begin_ns <= spans[merged - 1].end_ns) {
      spans[merged - 1].end_ns =
          std::max(spans[merged - 1].end_ns, span.end_ns);
    } else {
      spans[merged++] = span;
    }
  }
  spans.resize(merged);
  return spans;
}

std::vector<Span> MergeAcross(std::vector<Span> spans, int64_t gap_ns) {
  // Spans that are near each other overlap once each is lengthened by the gap.
  // The gap is then taken off the end of each merged span.
  for (Span& span : spans) span.end_ns += gap_ns;
  spans = Merge(std::move(spans));
  for (Span& span : spans) span.end_ns -= gap_ns;
  return spans;
}

// Both lists are sorted, so one pass over both is enough.
std::vector<Span> Intersect(std::span<const Span> a, std::span<const Span> b) {
  std::vector<Span> common;
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    const Span both{std::max(a[i].begin_ns, b[j].begin_ns),
                    std::min(a[i].end_ns, b[j].end_ns)};
    if (both.length() > 0) common.push_back(both);
    // The span that ends first cannot meet anything further on.
    a[i].end_ns < b[j].end_ns ? ++i : ++j;
  }
  return common;
}

std::vector<Span> Subtract(std::span<const Span> a, std::span<const Span> b) {
  std::vector<Span> rest;
  size_t j = 0;
  for (Span span : a) {
    // The spans of `a` are sorted, so spans of `b` that end before this one are
    // no longer needed.
    while (j < b.size() && b[j].end_ns <= span.begin_ns) ++j;
    for (size_t k = j; k < b.size() && b[k].begin_ns < span.end_ns; ++k) {
      if (b[k].begin_ns > span.begin_ns) {
        rest.push_back({span.begin_ns, b[k].begin_ns});
      }
      span.begin_ns = std::max(span.begin_ns, b[k].end_ns);
    }
    if (span.length() > 0) rest.push_back(span);
  }
  return rest;
}

std::vector<Span> Clip(std::span<const Span> a, Span window) {
  const auto first =
      // Disjoint spans are sorted by end as well as by start.
      std::ranges::upper_bound(a, window.begin_ns, {}, &Span::end_ns);
  std::vector<Span> inside;
  for (auto it = first; it != a.end() && it->begin_ns < window.end_ns; ++it) {
    inside.push_back({std::max(it->begin_ns, window.begin_ns),
                      std::min(it->end_ns, window.end_ns)});
  }
  return inside;
}

int64_t Length(std::span<const Span> a) {
  int64_t total = 0;
  for (const Span& span : a) total += span.length();
  return total;
}

int64_t LengthIn(std::span<const Span> a, Span window) {
  const auto first =
      std::ranges::upper_bound(a, window.begin_ns, {}, &Span::end_ns);
  int64_t total = 0;
  for (auto it = first; it != a.end() && it->begin_ns < window.end_ns; ++it) {
    total += std::min(it->end_ns, window.end_ns) -
             std::max(it->begin_ns, window.begin_ns);
  }
  return total;
}

bool Covers(std::span<const Span> a, int64_t time_ns) {
  const auto after = std::ranges::upper_bound(a, time_ns, {}, &Span::begin_ns);
  return after != a.begin() && time_ns < std::prev(after)->end_ns;
}

}  // namespace stepscope
