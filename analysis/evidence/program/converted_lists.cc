#include "evidence/program/converted_lists.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "ops/loader_spans.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// Reading the sizes and types of a list / reading its values, at most: 0.5
// to 2.7 for lists of floats and integers, flat and in rows of 2 to 100
// (torch 2.11, the fastest of eight conversions each).
constexpr int64_t kSizesPerValues = 3;

// When the step began that contains `time_ns`; `time_ns` if there is none.
int64_t StepBegin(const AnalysisContext& m, int64_t time_ns) {
  const size_t step = WindowAt(m.steps, &StepWindow::host, time_ns);
  return step < m.steps.windows.size() ? m.steps.windows[step].host.begin_ns
                                       : time_ns;
}

}  // namespace

std::vector<Span> FindConvertedLists(const AnalysisContext& m) {
  std::vector<Span> found;
  if (m.steps.thread == kNone) return found;
  const std::vector<Span> loading = LoaderSpans(m.trace, m.steps.thread);
  std::vector<const Op*> outermost;
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    if (op.parent == kNone) outermost.push_back(&op);
  }
  const auto is = [&](size_t i, std::string_view name) {
    return m.trace.name(outermost[i]->name) == name;
  };
  for (size_t i = 0; i + 2 < outermost.size(); ++i) {
    if (!is(i, "aten::empty") || !is(i + 1, "aten::to") ||
        !is(i + 2, "aten::lift_fresh")) {
      continue;
    }
    const Op& made = *outermost[i];
    const int64_t values_ns = outermost[i + 1]->begin_ns - made.end_ns;
    if (values_ns <= kFrameworkGapNs ||
        LengthIn(loading, {made.begin_ns, made.end_ns}) > 0) {
      continue;
    }
    int64_t idle_since = StepBegin(m, made.begin_ns);
    if (i > 0) idle_since = std::max(idle_since, outermost[i - 1]->end_ns);
    const int64_t sizes_ns = std::clamp<int64_t>(made.begin_ns - idle_since, 0,
                                                 kSizesPerValues * values_ns);
    found.push_back({made.begin_ns - sizes_ns, outermost[i + 2]->end_ns});
  }
  return found;
}

}  // namespace stepscope
