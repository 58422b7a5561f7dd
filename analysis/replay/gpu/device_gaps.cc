#include "replay/gpu/device_gaps.h"

#include <algorithm>
#include <string_view>

#include "device/gaps.h"
#include "replay/gpu/host_only.h"
#include "replay/model/loader.h"
#include "replay/model/replay_parameters.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// An op that launches nothing and takes more than 20 us computes on the host.
constexpr int64_t kHostOpNs = 20'000;
// Workers are too slow if the training thread waits for them for at least 5 %
// of the step, the share from which torch-tb-profiler and XProf report loading.
constexpr double kMinLateFrac = 0.05;

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

// Sets the time to make a batch, and how fast the recorded workers can be.
// Without workers, the training thread shows the time. Workers that are too
// slow limit the step, so each of n workers takes n times the step time per
// batch of a step. If the workers are fast enough, the time is not visible and
// stays unknown.
void MeasureLoading(const Trace& trace, const Steps& steps,
                    DeviceProgram& program) {
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
  program.rate =
      MeasureLoaderRate(trace, steps, program.cores, program.measured_ns);
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
    // The last thread of the chain is the training thread. Its timeline also
    // shows what the autograd threads do while it waits for them.
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
            host.unused_ns += std::min<float>(ns, kNodeNs);
          }
        }
      }
    }
  }

  for (DeviceNode& activity : program.activities) {
    const RowId op = ActivityOf(trace, activity.ref).op;
    activity.zero_grad = op != kNone && zeroing[op];
    const int64_t launched = hosts[activity.host].gap.end_ns;
    activity.in_optimizer = Covers(parts.optimizer.spans, launched);
    if (activity.host == kBacklogNode) continue;
    const size_t step = WindowAt(steps, &StepWindow::host, launched);
    if (step < steps.windows.size()) activity.step = static_cast<int32_t>(step);
  }
}

void MeasureSteps(const Trace& trace, const Steps& steps,
                  DeviceProgram& program) {
  for (const StepWindow& window : steps.windows) {
    program.windows.push_back(window.tiled);
  }
  const std::vector<int64_t> host_ns = HostOnlyNs(trace, steps, program);
  program.steady = steps.steady;
  for (size_t i : steps.steady) {
    program.measured_ns += steps.windows[i].tiled.length();
    program.host_only_ns += host_ns[i];
    program.one_off_ns += steps.windows[i].one_off_ns;
  }
  program.measured_ns /= steps.steady.size();
  program.host_only_ns /= steps.steady.size();
  program.one_off_ns /= steps.steady.size();

  MeasureLoading(trace, steps, program);
}

}  // namespace stepscope
