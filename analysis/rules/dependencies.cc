// Is the GPU idle because queued work waits for another stream?
// A gap of up to 10 us before queued work is the device's own latency. 3 % of
// the step is the lowest share that XProf calls moderate.
#include <stepscope/kernel_class.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "device/device_ledger.h"
#include "evidence/launches.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace dependencies_rules {
namespace {

constexpr double kDependencyShare = 0.03;

std::string NameOf(const Trace& trace, const ActivityRef& ref) {
  switch (ref.table) {
    case ActivityTable::kCopy:
      return "a copy";
    case ActivityTable::kMemset:
      return "a memset";
    case ActivityTable::kKernel:
      break;
  }
  return std::string(trace.name(trace.kernels()[ref.row].name));
}

bool IsCollective(const Trace& trace, const ActivityRef& ref) {
  return ref.table == ActivityTable::kKernel &&
         IsCollectiveKernel(trace.name(trace.kernels()[ref.row].name));
}

struct Stall {
  const Gap* gap;
  size_t step;
};

// Returns the gaps between queued work and the work that it waits for: an
// activity of another stream, or a collective.
std::vector<Stall> FindStalls(const AnalysisContext& m) {
  std::vector<Stall> stalls;
  for (const Gap& gap : m.waits.idle) {
    // Other rules report late launches and gaps inside graphs.
    if (gap.host_late || !gap.launch_known ||
        gap.idle.length() <= kQueuedLatencyNs || InGraph(m.trace, gap.next)) {
      continue;
    }
    const DeviceWork& before = ActivityOf(m.trace, gap.before);
    const DeviceWork& next = ActivityOf(m.trace, gap.next);
    // Work on one stream runs in order anyway. On its own stream, only a
    // collective makes it wait for others: the other ranks.
    if (before.stream == next.stream && !IsCollective(m.trace, gap.before)) {
      continue;
    }
    // Use the tiled spans, which leave no idle time of the device between
    // steps.
    const size_t step =
        SteadyStepAt(m.steps, gap.idle.begin_ns, &StepWindow::tiled);
    if (step < m.steps.windows.size()) stalls.push_back({&gap, step});
  }
  return stalls;
}

Verdict CheckDependency(const AnalysisContext& m) {
  std::vector<Stall> stalls = FindStalls(m);
  std::map<std::string, double> by_cause;
  double total = 0;
  Edit edit;
  for (const Stall& stall : stalls) {
    const DeviceWork& before = ActivityOf(m.trace, stall.gap->before);
    const DeviceWork& next = ActivityOf(m.trace, stall.gap->next);
    const auto ns = static_cast<double>(stall.gap->idle.length());
    total += ns;
    by_cause[NameOf(m.trace, stall.gap->before) + " on stream " +
             std::to_string(before.stream) + ", before " +
             NameOf(m.trace, stall.gap->next) + " on stream " +
             std::to_string(next.stream)] += ns;
    edit.no_dependency.push_back(stall.gap->next);
  }
  const auto steps = static_cast<double>(m.steps.steady.size());
  total /= steps;
  if (total < kDependencyShare * m.step_ns() ||
      total * 1e-6 < MinReportableGainMs(m)) {
    return Clean();
  }
  const auto worst = std::ranges::max_element(
      by_cause, {}, [](const auto& c) { return c.second; });
  std::ranges::stable_sort(stalls, std::greater(), [](const Stall& stall) {
    return stall.gap->idle.length();
  });
  Finding finding;
  finding.confidence = Confidence::kStrong;
  for (size_t i = 0; i < std::min<size_t>(3, stalls.size()); ++i) {
    const Gap& gap = *stalls[i].gap;
    finding.examples.push_back({m.steps.windows[stalls[i].step].number,
                                gap.idle.begin_ns, gap.idle.end_ns,
                                "waiting for " + NameOf(m.trace, gap.before)});
  }
  finding.evidence =
      "The GPU is idle for " + Milliseconds(total * 1e-6) + " of the " +
      Milliseconds(m.stats.mean_ms) + " step (" + Percent(total / m.step_ns()) +
      ") although work is queued, because that work waits for another stream "
      "or a collective.";
  finding.where =
      worst->first + " (" + Milliseconds(worst->second / steps * 1e-6) + ")";
  finding.assumption =
      "the work after the gap does not need the result that it waits for";
  finding.fix_cpp =
      "put independent work on separate streams, start collectives earlier, "
      "and wait with an event where the result is used";
  finding.fix_python =
      "put independent work on a torch.cuda.Stream; start collectives with "
      "async_op=True and wait() where the result is used";
  finding.wrong_if = "the next kernel reads what the other stream produced";
  return Fire(std::move(finding), std::move(edit), total);
}

constexpr Rule kRules[] = {
    {.id = "dependency-stall",
     .question = "Is the GPU idle because queued work waits for another "
                 "stream?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kRuntimeCall},
     .causes = {Cause::kDependency},
     .check = &CheckDependency,
     .reference = "stepscope: idle time that is not due to host "
                  "synchronisation",
     .detect = "gaps of more than 10 us, after an activity of another stream "
               "or a collective and before work that was already launched, add "
               "up to at least 3 % of the step",
     .avoid = "the gaps lie within one stream or before nodes of a CUDA graph",
     .fix_cpp = "put independent work on separate streams; start collectives "
                "earlier",
     .fix_python = "put independent work on a torch.cuda.Stream; use "
                   "async_op=True and a later wait()",
     .change = "no waits between streams"}};

}  // namespace
}  // namespace dependencies_rules

extern const std::span<const Rule> kDependencies = dependencies_rules::kRules;

}  // namespace stepscope
