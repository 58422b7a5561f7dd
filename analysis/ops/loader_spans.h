// When a thread takes batches.
#pragma once

#include <stepscope/trace.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/intervals.h"

namespace stepscope {

// True for ranges in which a batch is taken: those of data loaders, or, if the
// run has no loader ranges, phases named "data".
class TakesBatch {
 public:
  // `trace` must outlive this.
  explicit TakesBatch(const Trace& trace)
      : trace_(trace),
        any_loader_(std::ranges::any_of(trace.ranges(), IsOfLoader)) {}

  bool operator()(const Range& range) const {
    return IsOfLoader(range) ||
           (!any_loader_ && range.kind == RangeKind::kPhase &&
            trace_.name(range.name) == "data");
  }

 private:
  static bool IsOfLoader(const Range& range) {
    return range.kind == RangeKind::kLoader;
  }
  const Trace& trace_;
  const bool any_loader_;
};

// The loader's ranges on `thread`, as a disjoint list.
inline std::vector<Span> LoaderSpans(const Trace& trace, RowId thread) {
  std::vector<Span> spans;
  for (const Range& range : trace.ranges()) {
    if (range.kind == RangeKind::kLoader && range.thread == thread) {
      spans.push_back({range.begin_ns, range.end_ns});
    }
  }
  return Merge(std::move(spans));
}

}  // namespace stepscope
