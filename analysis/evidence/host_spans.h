// HostSpans: the calls of a given name in the steady steps, recorded as
// operators or as ranges, and the activities launched in them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "context/analysis_context.h"
#include "edit/edit.h"

namespace stepscope {

struct HostSpan {
  RowId thread = kNone;
  Span span;
};

// Returns the ops and ranges whose name contains `part`, in time order. Leaves
// out spans inside another one of the same thread.
std::vector<HostSpan> SpansNamed(const AnalysisContext& context,
                                 std::string_view part);

// Returns the activities that the threads launched inside the spans.
// REQUIRES: the spans of each thread are in time order and do not overlap.
std::vector<ActivityRef> LaunchedIn(const AnalysisContext& context,
                                    const std::vector<HostSpan>& spans);

// Return the total length in ns per steady step.
double HostNsPerStep(const AnalysisContext& context,
                     const std::vector<HostSpan>& spans);
double DeviceNsPerStep(const AnalysisContext& context,
                       const std::vector<ActivityRef>& work);

// Returns the three op names that take the most time among `ops`, with their
// time and calls per steady step: "15.2 ms aten::histc (16 calls), 1.1 ms
// aten::min (16 calls)".
// REQUIRES: `ops` are rows of the steady steps.
std::string LongestOps(const AnalysisContext& context,
                       const std::vector<RowId>& ops);

// Returns an edit that removes the host time of the spans and the activities.
Edit Without(const std::vector<HostSpan>& spans,
             const std::vector<ActivityRef>& work);

}  // namespace stepscope
