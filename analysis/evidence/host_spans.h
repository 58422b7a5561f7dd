// HostSpans: calls of one name in the steady steps, whether a file tells them
// as operators or as ranges, and the device work that was launched in them.
#pragma once

#include <string_view>
#include <vector>

#include "context/analysis_context.h"
#include "edit/edit.h"

namespace stepscope {

struct HostSpan {
  RowId thread = kNone;
  Span span;
};

// Those whose name contains `part`, in time order. Nested ones count once.
std::vector<HostSpan> SpansNamed(const AnalysisContext& m,
                                 std::string_view part);

// Device work launched inside the spans.
std::vector<ActivityRef> LaunchedIn(const AnalysisContext& m,
                                    const std::vector<HostSpan>& spans);

// Sums per steady step, in ns.
double HostNsPerStep(const AnalysisContext& m,
                     const std::vector<HostSpan>& spans);
double DeviceNsPerStep(const AnalysisContext& m,
                       const std::vector<ActivityRef>& work);

// The spans are not run, and their device work is dropped.
Edit Without(const std::vector<HostSpan>& spans,
             const std::vector<ActivityRef>& work);

}  // namespace stepscope
