// When a thread takes batches from its loader.
#pragma once

#include <stepscope/trace.h>

#include <utility>
#include <vector>

#include "ops/intervals.h"

namespace stepscope {

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
