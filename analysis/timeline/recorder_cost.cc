#include "timeline/recorder_cost.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "steps/steady_steps.h"
#include "steps/step_window.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// Cost of an operator / spacing, where spacing is the tenth percentile of the
// times between two operators of one parent. Measured with
// tests/bench/torch_profiler_cost.py (torch 2.11, two cores) on programs of 200
// to 4000 operators per step, with and without the profiler, its shapes, memory
// and stacks: 1.9 to 6.5, median 4. The spacing is smaller than the cost
// because it shows only the part of a callback between the two readings of the
// clock.
constexpr double kOpPerSpacing = 4;
// Cost of a CUDA call / cost of an operator. In 14 programs on an H200 whose
// steps are limited by the host, torch.profiler added 4.9 us per operator and
// 4.5 us per kernel.
constexpr double kCallPerOp = 1;
// Cost of a Python frame / spacing of frames. Each frame is recorded twice.
constexpr double kFramePerSpacing = 2;
constexpr size_t kFewest = 100;  // distances
constexpr size_t kFewestWaits = 2;
// Larger spacings count as this: something else takes part of the time, or the
// machine is slow in a way that slows the callbacks less. In 11 programs with a
// spacing of 1.0 to 1.5 us on a shared machine, the profiler added 0.8 to 33 us
// per operator, median 8; on a fast one (an H200's host) 4.9 us.
constexpr double kMostSpacingNs = 1'000;

// The tenth percentile of `distances`, at most kMostSpacingNs; 0 if there are
// too few distances. The minimum would depend on single wrong clock readings,
// and the median would include what the program itself does between most
// operators.
double Spacing(std::vector<int64_t> distances) {
  if (distances.size() < kFewest) return 0;
  const auto tenth =
      distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 10);
  std::ranges::nth_element(distances, tenth);
  const auto ns = static_cast<double>(std::max<int64_t>(*tenth, 0));
  return std::min(ns, kMostSpacingNs);
}

// The times between neighbouring ops of one parent.
std::vector<int64_t> BetweenOps(const Trace& trace, const OpTree& tree) {
  // The table has outer ops first and siblings in time order, so one number per
  // parent suffices: the end of the child seen last.
  std::vector<int64_t> distances;
  std::vector<int64_t> last_end(trace.ops().size(), -1);  // of a child
  for (RowId thread = 0; thread < trace.threads().size(); ++thread) {
    for (RowId row : tree.of_thread(thread)) {
      const Op& op = trace.ops()[row];
      if (op.parent == kNone) continue;
      int64_t& last = last_end[op.parent];
      if (last >= 0) distances.push_back(op.begin_ns - last);
      last = op.end_ns;
    }
  }
  return distances;
}

// The times between neighbouring frames of one caller. Frames are sorted by
// begin, callers before what they call.
std::vector<int64_t> BetweenFrames(const Trace& trace) {
  struct Open {
    int64_t end_ns;
    int64_t last_end_ns;  // of a frame that it called
  };
  std::vector<int64_t> distances;
  std::vector<std::vector<Open>> stacks(trace.threads().size());
  for (const PythonFrame& frame : trace.python_frames()) {
    if (frame.thread == kNone) continue;
    std::vector<Open>& stack = stacks[frame.thread];
    while (!stack.empty() && stack.back().end_ns <= frame.begin_ns) {
      stack.pop_back();
    }
    if (!stack.empty()) {
      int64_t& last = stack.back().last_end_ns;
      if (last >= 0) distances.push_back(frame.begin_ns - last);
      last = frame.end_ns;
    }
    stack.push_back({frame.end_ns, -1});
  }
  return distances;
}

// By how many ns per event (op or CUDA call) the recorded steps are longer than
// the steps before the window; 0 if those were not timed or are not shorter.
double AddedPerEvent(const Trace& trace, const OpTree& tree,
                     const Steps& steps) {
  const std::vector<int64_t>& waits = trace.run().wait_step_ns;
  if (waits.size() < kFewestWaits || steps.steady.empty() ||
      steps.thread == kNone) {
    return 0;
  }
  std::vector<double> recorded;
  double events = 0;
  for (size_t i : steps.steady) {
    recorded.push_back(static_cast<double>(steps.windows[i].host.length()));
  }
  std::vector<RowId> threads = AutogradThreads(tree, steps.thread);
  threads.push_back(steps.thread);
  for (RowId thread : threads) {
    for (RowId row : tree.of_thread(thread)) {
      events += InSteadyStep(steps, trace.ops()[row].begin_ns);
    }
  }
  for (const RuntimeCall& call : trace.runtime_calls()) {
    events += std::ranges::count(threads, call.thread) > 0 &&
              InSteadyStep(steps, call.begin_ns);
  }
  const double added =
      Median(std::move(recorded)) - Median({waits.begin(), waits.end()});
  if (added <= 0 || events == 0) return 0;
  return added * static_cast<double>(steps.steady.size()) / events;
}

// True for files rounded to microseconds. Their distances are useless here,
// because 1 us is as long as the distances to measure.
bool InWholeMicroseconds(const Trace& trace) {
  return std::ranges::all_of(
      trace.ops(), [](const Op& op) { return op.begin_ns % 1'000 == 0; });
}

}  // namespace

RecorderCost CostOfRecording(const Trace& trace, const OpTree& tree,
                             const Steps& steps) {
  // A recording of stepscope has the measured cost in its header.
  if (trace.run().op_cost_ns > 0) {
    const double event_ns =
        trace.has_device_work() ? AddedPerEvent(trace, tree, steps) : 0;
    return {.op_ns = std::max(trace.run().op_cost_ns, event_ns),
            .call_ns = event_ns};
  }
  if (trace.run().producer != "torch.profiler" || InWholeMicroseconds(trace)) {
    return {};
  }
  const double op_ns = kOpPerSpacing * Spacing(BetweenOps(trace, tree));
  return {.op_ns = op_ns,
          .call_ns = kCallPerOp * op_ns,
          .frame_ns = kFramePerSpacing * Spacing(BetweenFrames(trace)),
          .estimated = true};
}

double FramesIn(const Trace& trace, RowId thread, Span window) {
  const std::span<const PythonFrame> frames = trace.python_frames();
  double count = 0;
  for (auto it = std::ranges::lower_bound(frames, window.begin_ns, {},
                                          &PythonFrame::begin_ns);
       it != frames.end() && it->begin_ns < window.end_ns; ++it) {
    count += it->thread == thread;
  }
  return count;
}

}  // namespace stepscope
