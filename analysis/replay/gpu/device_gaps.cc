#include "replay/gpu/device_gaps.h"

#include <algorithm>
#include <deque>
#include <string_view>

#include "replay/cpu/graph.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// A pause of at most 50 us between ops is framework code; longer ones are the
// program's own. Our own choice, as for CPU-only runs.
constexpr int64_t kFrameworkGapNs = 50'000;
// An op that launches nothing and takes more than 20 us computes on the host.
constexpr int64_t kHostOpNs = 20'000;
// Workers are too slow if the training thread waits for them for 5 % of the
// step, where torch-tb-profiler and XProf also begin to report loading.
constexpr double kMinLateFrac = 0.05;
// Typical host time to make one autograd node, in ns.
constexpr float kNodeNs = 700;

// By row of ops(): true for these ops and all ops below them.
std::vector<bool> Below(const Trace& trace, const ZeroGrad& zero_grad) {
  std::vector<bool> below(trace.ops().size());
  for (RowId row : zero_grad.zeroing) below[row] = true;
  for (RowId row : zero_grad.adding) below[row] = true;
  for (RowId row = 0; row < below.size(); ++row) {
    const RowId parent = trace.ops()[row].parent;
    if (parent != kNone && below[parent]) below[row] = true;
  }
  return below;
}

// By row of ops(): true for ops that make runtime calls.
std::vector<bool> Launching(const Trace& trace) {
  std::vector<bool> launching(trace.ops().size());
  for (const RuntimeCall& call : trace.runtime_calls()) {
    if (call.op != kNone) launching[call.op] = true;
  }
  return launching;
}

RowId OpOf(const Trace& trace, ActivityRef ref) {
  switch (ref.table) {
    case ActivityTable::kKernel:
      return trace.kernels()[ref.row].op;
    case ActivityTable::kCopy:
      return trace.copies()[ref.row].op;
    case ActivityTable::kMemset:
      return trace.memsets()[ref.row].op;
  }
  return kNone;
}

// Sets the time to make a batch. Without workers, the training thread shows it.
// Workers that are too slow limit the step, so each of them takes the number of
// workers times the step. Workers that are fast enough do not show their time.
void MeasureLoading(const Trace& trace, DeviceProgram& program) {
  int64_t total = 0, batches = 0;
  for (int64_t ns : program.loader_ns) {
    total += ns;
    batches += ns > 0;
  }
  if (batches == 0 || program.windows.empty()) return;
  program.batches_per_step =
      static_cast<double>(batches) / program.windows.size();
  const int workers = LoaderWorkers(trace);
  const double per_batch = static_cast<double>(total) / batches;
  if (workers == 0) {
    program.batch_ns = per_batch;
    program.loads_in_process = true;
  } else if (workers > 0 && per_batch * program.batches_per_step >=
                                kMinLateFrac * program.measured_ns) {
    program.batch_ns = workers * program.measured_ns / program.batches_per_step;
  }
}

// True if a piece of a segment is framework code, which compiling the model
// would remove.
bool IsFramework(const Segment& segment, int64_t piece_ns,
                 const std::vector<bool>& launching) {
  switch (segment.cause) {
    case Cause::kDispatch:
      return true;
    case Cause::kCompute:
      return launching[segment.op] || piece_ns <= kHostOpNs;
    case Cause::kHostCode:
      return segment.length() <= kFrameworkGapNs;
    default:
      return false;
  }
}

}  // namespace

void MeasureGaps(const Trace& trace, const OpTree& tree, const Steps& steps,
                 const StepParts& parts, DeviceProgram& program) {
  const std::vector<bool> zeroing = Below(trace, parts.zero_grad);
  const std::vector<bool> launching = Launching(trace);
  std::vector<Span> unused_spans;
  for (const UnusedGraph& graph : parts.unused_graphs)
    unused_spans.push_back(graph.span);
  unused_spans = Merge(std::move(unused_spans));

  std::vector<HostNode>& hosts = program.hosts;
  if (!program.threads.empty() && !hosts.empty()) {
    const Span window{hosts.front().gap.begin_ns, hosts.back().call_end_ns};
    size_t node = 0;
    size_t inside = 0;  // of unused_spans
    program.host = HostTimeline(trace, tree, program.threads.back(), window);
    for (const Segment& segment : program.host) {
      while (node < hosts.size() &&
             hosts[node].call_end_ns <= segment.begin_ns) {
        ++node;
      }
      while (inside < unused_spans.size() &&
             unused_spans[inside].end_ns <= segment.begin_ns) {
        ++inside;
      }
      const bool in_unused = inside < unused_spans.size() &&
                             unused_spans[inside].begin_ns <= segment.begin_ns;
      for (size_t i = node;
           i < hosts.size() && hosts[i].gap.begin_ns < segment.end_ns; ++i) {
        HostNode& host = hosts[i];
        const int64_t piece = std::min(host.gap.end_ns, segment.end_ns) -
                              std::max(host.gap.begin_ns, segment.begin_ns);
        if (piece <= 0) continue;
        const float ns = static_cast<float>(piece);
        if (segment.op != kNone && zeroing[segment.op]) {
          host.zero_grad_ns += ns;
        } else if (IsFramework(segment, piece, launching)) {
          host.framework_ns += ns;
          if (in_unused && segment.op != kNone) {
            host.unused_ns += std::min(ns, kNodeNs);
          }
        }
      }
    }
  }

  for (DeviceNode& activity : program.activities) {
    const RowId op = OpOf(trace, activity.ref);
    activity.zero_grad = op != kNone && zeroing[op];
    const int64_t launched = hosts[activity.host].gap.end_ns;
    activity.in_optimizer = Covers(parts.optimizer.spans, launched);
    const size_t step = WindowAt(steps, &StepWindow::host, launched);
    if (step < steps.windows.size()) activity.step = static_cast<int32_t>(step);
  }
}

void MeasureSteps(const Trace& trace, const Steps& steps,
                  DeviceProgram& program) {
  std::vector<Span> busy;
  busy.reserve(program.activities.size());
  for (const DeviceNode& activity : program.activities)
    busy.push_back(activity.span);
  busy = Merge(std::move(busy));

  std::vector<int64_t> host_ns(steps.windows.size());
  for (size_t i = 0; i < steps.windows.size(); ++i) {
    const Span& host = steps.windows[i].host;
    host_ns[i] = host.end_ns -
                 (i == 0 ? host.begin_ns : steps.windows[i - 1].host.end_ns);
    program.windows.push_back(steps.windows[i].tiled);
  }
  for (const HostNode& node : program.hosts) {
    if (node.wait == NodeWait::kNothing) continue;
    const auto step = std::ranges::upper_bound(
        steps.windows, node.gap.end_ns, {},
        [](const StepWindow& window) { return window.host.end_ns; });
    if (step == steps.windows.end()) continue;
    if (node.gap.end_ns < steps.windows.front().host.begin_ns) continue;
    // After its wait, a call's time is the host's own.
    const int64_t waited =
        std::min(node.call_end_ns, program.activities[node.target].span.end_ns);
    const int64_t waits_from =
        node.gap.end_ns + static_cast<int64_t>(node.before_ns);
    if (waited <= waits_from) continue;
    host_ns[step - steps.windows.begin()] -=
        LengthIn(busy, {waits_from, waited});
  }
  program.steady = steps.steady;
  for (size_t i : steps.steady) {
    program.measured_ns += steps.windows[i].tiled.length();
    program.host_only_ns += host_ns[i];
  }
  program.measured_ns /= steps.steady.size();
  program.host_only_ns /= steps.steady.size();

  MeasureLoading(trace, program);

  std::vector<std::deque<int64_t>> in_flight(program.streams);
  for (const DeviceNode& activity : program.activities) {
    std::deque<int64_t>& ends = in_flight[activity.stream];
    const int64_t launched = program.hosts[activity.host].gap.end_ns;
    while (!ends.empty() && ends.front() <= launched) ends.pop_front();
    ends.push_back(activity.span.end_ns);
    program.deepest_queue =
        std::max<uint32_t>(program.deepest_queue, ends.size());
  }
}

}  // namespace stepscope
