#include "evidence/program/converted_lists.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "ops/loader_spans.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// torch.tensor() takes at most this many times as long for the sizes and types
// of a list as for its values. Measured ratios: 0.5 to 2.7 for lists of floats
// and integers, flat and in rows of 2 to 100 (torch 2.11, the fastest of eight
// conversions each).
constexpr int64_t kSizesPerValues = 3;
// A loop that converts sample by sample; fewer conversions are a few settings
// or labels.
constexpr size_t kLeastInARow = 16;

// Returns the start of the step that contains `time_ns`; `time_ns` if none
// does.
int64_t StepBegin(const AnalysisContext& m, int64_t time_ns) {
  const size_t step = WindowAt(m.steps, &StepWindow::host, time_ns);
  return step < m.steps.windows.size() ? m.steps.windows[step].host.begin_ns
                                       : time_ns;
}

// Finds loops that call torch.tensor() for one small list after another. Each
// call shows as aten::empty, aten::to, aten::lift_fresh and aten::detach_, with
// only framework code between; older versions lack some of them.
std::vector<Span> FindConvertedInARow(const AnalysisContext& m,
                                      std::span<const Op* const> outermost,
                                      const std::vector<Span>& loading) {
  std::vector<Span> found;
  Span span;
  size_t lifted = 0;
  const auto close = [&] {
    if (lifted >= kLeastInARow && LengthIn(loading, span) == 0) {
      found.push_back(span);
    }
    lifted = 0;
  };
  for (const Op* op : outermost) {
    const std::string_view name = m.trace.name(op->name);
    const bool lifts = name == "aten::lift_fresh";
    const bool belongs = lifts || name == "aten::empty" || name == "aten::to" ||
                         name == "aten::detach_";
    if (lifted > 0 &&
        (!belongs || op->begin_ns - span.end_ns > kFrameworkGapNs)) {
      close();
    }
    if (lifts) {
      if (lifted == 0) span.begin_ns = op->begin_ns;
      ++lifted;
    }
    if (lifted > 0) span.end_ns = op->end_ns;
  }
  close();
  return found;
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
  // Given a list, torch.tensor() allocates the tensor and fills it without
  // calling an op, so the filling shows as the pause between the first two of
  // these ops.
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
    // Before it allocates, it walks the list for sizes and types, which also
    // shows as a pause.
    int64_t idle_since = StepBegin(m, made.begin_ns);
    if (i > 0) idle_since = std::max(idle_since, outermost[i - 1]->end_ns);
    const int64_t sizes_ns = std::clamp<int64_t>(made.begin_ns - idle_since, 0,
                                                 kSizesPerValues * values_ns);
    found.push_back({made.begin_ns - sizes_ns, outermost[i + 2]->end_ns});
  }
  const std::vector<Span> in_a_row = FindConvertedInARow(m, outermost, loading);
  found.insert(found.end(), in_a_row.begin(), in_a_row.end());
  return Merge(std::move(found));
}

}  // namespace stepscope
