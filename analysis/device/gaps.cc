#include "device/gaps.h"

#include <stepscope/kernel_class.h>

#include <algorithm>

#include "device/device_ledger.h"
#include "ops/by_name.h"
#include "ops/sorted_parts.h"

namespace stepscope {
namespace {

// An activity with its time, for sorting.
struct Timed {
  Span span;
  ActivityRef activity;
};

std::vector<Timed> ActivitiesOf(const Trace& trace, int32_t device,
                                bool collectives) {
  std::vector<Timed> activities;
  activities.reserve(trace.kernels().size() + trace.copies().size() +
                     trace.memsets().size());
  ByName is_collective(trace, &IsCollectiveKernel);
  const auto add = [&](const auto& table, ActivityTable which) {
    for (RowId row = 0; row < table.size(); ++row) {
      const bool left_out = which == ActivityTable::kKernel && !collectives &&
                            is_collective(table[row].name);
      if (table[row].device == device && !left_out) {
        activities.push_back(
            {{table[row].begin_ns, table[row].end_ns}, {which, row}});
      }
    }
  };
  add(trace.kernels(), ActivityTable::kKernel);
  const size_t kernels = activities.size();
  add(trace.copies(), ActivityTable::kCopy);
  const size_t copies = activities.size();
  add(trace.memsets(), ActivityTable::kMemset);
  // Each table is in time order, which is cheaper to merge than to sort.
  MergeSortedParts(activities, {kernels, copies, activities.size()},
                   [](const Timed& t) { return t.span.begin_ns; });
  return activities;
}

}  // namespace

const DeviceWork& ActivityOf(const Trace& trace, const ActivityRef& ref) {
  switch (ref.table) {
    case ActivityTable::kCopy:
      return trace.copies()[ref.row];
    case ActivityTable::kMemset:
      return trace.memsets()[ref.row];
    case ActivityTable::kKernel:
      break;
  }
  return trace.kernels()[ref.row];
}

std::vector<Gap> FindGaps(const Trace& trace, int32_t device,
                          bool collectives) {
  std::vector<Gap> gaps;
  const std::vector<Timed> activities =
      ActivitiesOf(trace, device, collectives);
  for (size_t i = 1, last = 0; i < activities.size(); ++i) {
    const int64_t dry = activities[last].span.end_ns;
    if (activities[i].span.begin_ns > dry) {
      Gap gap{.idle = {dry, activities[i].span.begin_ns},
              .before = activities[last].activity,
              .next = activities[i].activity};
      const RowId call = ActivityOf(trace, gap.next).call;
      gap.launch_known = call != kNone;
      gap.host_late =
          gap.launch_known && trace.runtime_calls()[call].begin_ns > dry;
      gaps.push_back(gap);
    }
    // Activities of several streams overlap, so the one that ends last counts.
    if (activities[i].span.end_ns >= dry) last = i;
  }
  return gaps;
}

std::vector<Span> IdleSpans(const std::vector<Gap>& gaps) {
  std::vector<Span> spans;
  spans.reserve(gaps.size());
  for (const Gap& gap : gaps) spans.push_back(gap.idle);
  return spans;
}

}  // namespace stepscope
