#include "evidence/host_spans.h"

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_set>
#include <utility>

#include "device/gaps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kNamesShown = 3;

}  // namespace

std::vector<HostSpan> SpansNamed(const AnalysisContext& context,
                                 std::string_view part) {
  const Trace& trace = context.trace;
  // There are few names and many rows, so match names once.
  std::unordered_set<NameId> names;
  for (NameId name = 0; name < trace.name_count(); ++name) {
    if (trace.name(name).find(part) != std::string_view::npos) {
      names.insert(name);
    }
  }
  std::vector<HostSpan> spans;
  if (names.empty()) return spans;
  const auto add = [&](const auto& row) {
    if (names.contains(row.name) && row.thread != kNone &&
        InSteadyStep(context.steps, row.begin_ns)) {
      spans.push_back({row.thread, {row.begin_ns, row.end_ns}});
    }
  };
  for (const Op& op : trace.ops()) add(op);
  for (const Range& range : trace.ranges()) add(range);
  std::ranges::stable_sort(spans, {}, [](const HostSpan& one) {
    // If spans start together, the outer one comes first.
    return std::pair(one.span.begin_ns, -one.span.end_ns);
  });
  // Outer spans come first, so a span that starts before the end of the last
  // span of its thread lies inside that span.
  std::map<RowId, int64_t> ends;
  std::erase_if(spans, [&](const HostSpan& one) {
    int64_t& end = ends.try_emplace(one.thread, INT64_MIN).first->second;
    if (one.span.begin_ns < end) return true;
    end = one.span.end_ns;
    return false;
  });
  return spans;
}

std::vector<ActivityRef> LaunchedIn(const AnalysisContext& context,
                                    const std::vector<HostSpan>& spans) {
  const Trace& trace = context.trace;
  std::vector<ActivityRef> work;
  if (spans.empty()) return work;
  std::map<RowId, std::vector<Span>> by_thread;
  for (const HostSpan& one : spans) by_thread[one.thread].push_back(one.span);
  std::vector<bool> inside(trace.runtime_calls().size());
  for (RowId row = 0; row < inside.size(); ++row) {
    const RuntimeCall& call = trace.runtime_calls()[row];
    const auto thread = by_thread.find(call.thread);
    if (thread == by_thread.end()) continue;
    // The spans of a thread are sorted and disjoint, so only the last one that
    // starts before the call can contain it.
    const auto after = std::ranges::upper_bound(thread->second, call.begin_ns,
                                                {}, &Span::begin_ns);
    inside[row] =
        after != thread->second.begin() && call.begin_ns < (after - 1)->end_ns;
  }
  const auto add = [&](const auto& rows, ActivityTable table) {
    for (RowId row = 0; row < rows.size(); ++row) {
      if (rows[row].call != kNone && inside[rows[row].call]) {
        work.push_back({table, row});
      }
    }
  };
  add(trace.kernels(), ActivityTable::kKernel);
  add(trace.copies(), ActivityTable::kCopy);
  add(trace.memsets(), ActivityTable::kMemset);
  return work;
}

double HostNsPerStep(const AnalysisContext& context,
                     const std::vector<HostSpan>& spans) {
  double sum = 0;
  for (const HostSpan& one : spans) sum += one.span.length();
  return sum / std::max<size_t>(context.steps.steady.size(), 1);
}

double DeviceNsPerStep(const AnalysisContext& context,
                       const std::vector<ActivityRef>& work) {
  double sum = 0;
  for (const ActivityRef& ref : work) {
    const DeviceWork& row = ActivityOf(context.trace, ref);
    sum += row.end_ns - row.begin_ns;
  }
  return sum / std::max<size_t>(context.steps.steady.size(), 1);
}

std::string LongestOps(const AnalysisContext& context,
                       const std::vector<RowId>& ops) {
  struct Same {
    double ns = 0, calls = 0;
  };
  const auto steps = static_cast<double>(context.steps.steady.size());
  std::map<std::string_view, Same> by_name;
  for (RowId row : ops) {
    const Op& op = context.trace.ops()[row];
    Same& same = by_name[context.trace.name(op.name)];
    same.ns += static_cast<double>(op.end_ns - op.begin_ns) / steps;
    same.calls += 1 / steps;
  }
  std::vector<std::pair<std::string_view, Same>> order(by_name.begin(),
                                                       by_name.end());
  std::ranges::stable_sort(order, std::greater(),
                           [](const auto& one) { return one.second.ns; });
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(kNamesShown, order.size()); ++i) {
    const auto& [name, same] = order[i];
    texts.push_back(Milliseconds(same.ns * 1e-6) + " " + std::string(name) +
                    " (" + MeanCount(same.calls, "call") + ")");
  }
  return Listed(texts);
}

Edit Without(const std::vector<HostSpan>& spans,
             const std::vector<ActivityRef>& work) {
  Edit edit;
  for (const HostSpan& one : spans) {
    edit.cuts.push_back({one.thread, one.span, 0});
  }
  for (const ActivityRef& ref : work) edit.scales.push_back({ref, 0});
  return edit;
}

}  // namespace stepscope
