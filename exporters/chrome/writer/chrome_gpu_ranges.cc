#include "chrome/writer/chrome_gpu_ranges.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace stepscope {
namespace {

// Activities launched while a loader makes a batch are not the loader's.
bool IsDrawn(RangeKind kind, bool all) {
  return kind != RangeKind::kLoader && (all || kind != RangeKind::kCollective);
}

// Returns the step in which `call` begins; kNone if there is none.
RowId StepAround(const Trace& trace, const RuntimeCall& call) {
  const std::span<const Step> steps = trace.steps();
  const auto after =
      std::ranges::upper_bound(steps, call.begin_ns, {}, &Step::begin_ns);
  if (after == steps.begin() || call.begin_ns >= (after - 1)->end_ns) {
    return kNone;
  }
  return static_cast<RowId>(after - steps.begin() - 1);
}

// The innermost range around each runtime call, and the range around each
// range.
class RangeTree {
 public:
  explicit RangeTree(const Trace& trace)
      : outer_(trace.ranges().size(), kNone),
        of_call_(trace.runtime_calls().size(), kNone) {
    // Both tables are sorted by begin, so one pass with a stack of open ranges
    // per thread finds the innermost ones.
    const auto ranges = trace.ranges();
    std::vector<std::vector<RowId>> open(trace.threads().size());
    RowId next = 0;
    for (RowId row = 0; row < of_call_.size(); ++row) {
      const RuntimeCall& call = trace.runtime_calls()[row];
      for (; next < ranges.size() && ranges[next].begin_ns <= call.begin_ns;
           ++next) {
        if (ranges[next].thread >= open.size()) continue;
        std::vector<RowId>& around = open[ranges[next].thread];
        Leave(ranges, ranges[next].begin_ns, around);
        if (!around.empty()) outer_[next] = around.back();
        around.push_back(next);
      }
      if (call.thread >= open.size()) continue;
      std::vector<RowId>& around = open[call.thread];
      Leave(ranges, call.begin_ns, around);
      if (!around.empty()) of_call_[row] = around.back();
    }
  }

  RowId OfCall(RowId call) const { return of_call_[call]; }
  RowId Outer(RowId range) const { return outer_[range]; }

 private:
  // Ranges on one thread nest, so those that have ended are on top.
  static void Leave(std::span<const Range> ranges, int64_t time_ns,
                    std::vector<RowId>& around) {
    while (!around.empty() && ranges[around.back()].end_ns <= time_ns)
      around.pop_back();
  }

  std::vector<RowId> outer_;
  std::vector<RowId> of_call_;
};

}  // namespace

std::vector<GpuRange> GpuRangesOf(const Trace& trace, bool all) {
  if (!trace.has_device_work()) return {};
  const RangeTree tree(trace);
  std::map<std::tuple<RowId, RowId, int32_t, int64_t>, GpuRange> found;
  const auto extend = [&](RowId range, RowId step, const DeviceWork& work) {
    const auto [it, added] =
        found.try_emplace({range, step, work.device, work.stream},
                          GpuRange{range, step, work.device, work.stream,
                                   work.begin_ns, work.end_ns});
    it->second.begin_ns = std::min(it->second.begin_ns, work.begin_ns);
    it->second.end_ns = std::max(it->second.end_ns, work.end_ns);
  };
  const auto see = [&](const DeviceWork& work) {
    if (work.call == kNone) return;
    for (RowId range = tree.OfCall(work.call); range != kNone;
         range = tree.Outer(range)) {
      if (IsDrawn(trace.ranges()[range].kind, all)) extend(range, kNone, work);
    }
    if (!all) return;
    const RowId step = StepAround(trace, trace.runtime_calls()[work.call]);
    if (step != kNone) extend(kNone, step, work);
  };
  for (const Kernel& kernel : trace.kernels()) see(kernel);
  for (const Copy& copy : trace.copies()) see(copy);
  for (const Memset& set : trace.memsets()) see(set);
  std::vector<GpuRange> ranges;
  ranges.reserve(found.size());
  for (const auto& [key, range] : found) ranges.push_back(range);
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const GpuRange& a, const GpuRange& b) {
                     if (a.begin_ns != b.begin_ns)
                       return a.begin_ns < b.begin_ns;
                     return a.end_ns > b.end_ns;
                   });
  return ranges;
}

}  // namespace stepscope
