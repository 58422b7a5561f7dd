#include "evidence/program/own_code.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "device/gaps.h"
#include "evidence/call_site.h"
#include "evidence/host_copies.h"
#include "evidence/stalls/state_reads.h"
#include "ops/update_span.h"
#include "steps/optimizer_spans.h"
#include "steps/patterns.h"
#include "steps/steady_steps.h"
#include "steps/step_facts.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// The longest pause that the recorder and the framework cause at the seams of a
// step: at the step mark (clocks, counters, /proc), where backward starts (the
// arguments of loss.backward()), and where it ends. Programs without code of
// their own there pause up to 0.43 ms at step marks, and 0.57 ms where all that
// can be recorded is (tests/data/gallery). With torch.profiler the pause is 0.1
// to 0.5 ms at each seam for 2 to 32 layers (torch 2.11, two busy cores).
constexpr int64_t kSeamNs = 600'000;

// Returns one timeline of the training thread per steady step. Needed for runs
// with a GPU, for which the context holds no timelines.
std::vector<std::vector<Segment>> HostTimelines(const AnalysisContext& m) {
  std::vector<std::vector<Segment>> all(m.steps.windows.size() + 1);
  const Span whole = {m.steps.windows.front().host.begin_ns,
                      m.steps.windows.back().host.end_ns};
  for (const Segment& segment : Slice(m.host, whole)) {
    all[SteadyStepAt(m.steps, segment.begin_ns)].push_back(segment);
  }
  all.pop_back();  // all other steps
  std::erase_if(all, [](const auto& timeline) { return timeline.empty(); });
  return all;
}

// Returns the index, among the training thread's ops, of the first op that
// starts at `time_ns` or later.
size_t FirstOpFrom(const AnalysisContext& m, int64_t time_ns) {
  const std::span<const RowId> ops = m.tree.of_thread(m.steps.thread);
  const auto from = std::ranges::lower_bound(
      ops, time_ns, {}, [&](RowId row) { return m.trace.ops()[row].begin_ns; });
  return static_cast<size_t>(from - ops.begin());
}

// Returns the outermost op around the last op that starts before `time_ns`,
// because an inner op says less about the place. kNone if there is none.
RowId OpBefore(const AnalysisContext& m, int64_t time_ns) {
  const size_t from = FirstOpFrom(m, time_ns);
  if (from == 0) return kNone;
  RowId row = m.tree.of_thread(m.steps.thread)[from - 1];
  while (m.trace.ops()[row].parent != kNone) row = m.trace.ops()[row].parent;
  return row;
}

// Returns the first op that starts at `time_ns` or later; kNone if there is
// none.
RowId OpAfter(const AnalysisContext& m, int64_t time_ns) {
  const std::span<const RowId> ops = m.tree.of_thread(m.steps.thread);
  const size_t from = FirstOpFrom(m, time_ns);
  return from == ops.size() ? kNone : ops[from];
}

bool IsAtStepMark(const AnalysisContext& m, const Segment& pause) {
  const std::vector<StepWindow>& windows = m.steps.windows;
  const auto next = std::ranges::lower_bound(
      windows, pause.begin_ns, {},
      [](const StepWindow& window) { return window.host.begin_ns; });
  return (next != windows.end() && next->host.begin_ns <= pause.end_ns) ||
         windows.back().host.end_ns <= pause.end_ns;
}

// True for an autograd node, and for the op that makes the first gradient,
// which is the only op that backward() runs before the nodes.
bool IsBackward(const AnalysisContext& m, RowId row) {
  if (m.tree.in_backward(row)) return true;
  if (m.trace.name(m.trace.ops()[row].name) != "aten::ones_like") return false;
  const RowId next = OpAfter(m, m.trace.ops()[row].end_ns);
  return next != kNone && m.tree.in_backward(next);
}

// True if the pause lies between forward and backward, or between backward and
// what follows.
bool IsAtBackward(const AnalysisContext& m, const Segment& pause) {
  const RowId before = OpBefore(m, pause.begin_ns);
  const RowId after = OpAfter(m, pause.end_ns);
  return before != kNone && after != kNone &&
         IsBackward(m, before) != IsBackward(m, after);
}

// True if the optimizer prepares its update in the pause. Checks the next op,
// because other ops may also run inside step(): with a closure it contains the
// whole pass.
bool IsInOptimizer(const AnalysisContext& m, const Segment& pause) {
  const RowId after = OpAfter(m, pause.end_ns);
  return after != kNone && m.tree.traits(after).update &&
         2 * LengthIn(m.parts.optimizer.spans, {pause.begin_ns, pause.end_ns}) >
             pause.length();
}

// Returns where torch.optim runs: zero_grad(), which may free gigabytes, and
// step(), unless a closure trains inside it.
std::vector<Span> OptimizerCalls(const AnalysisContext& m) {
  std::vector<int64_t> training;
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    const Op& op = m.trace.ops()[row];
    if (op.kind == OpKind::kBackward || m.tree.traits(row).matmul) {
      training.push_back(op.begin_ns);
    }
  }
  std::vector<Span> calls = ZeroGradRanges(m.trace);
  for (const Range& range : m.trace.ranges()) {
    if (range.thread != m.steps.thread || !IsOptimizerStep(m.trace, range)) {
      continue;
    }
    const auto next = std::ranges::lower_bound(training, range.begin_ns);
    if (next == training.end() || *next >= range.end_ns) {
      calls.push_back({range.begin_ns, range.end_ns});
    }
  }
  return Merge(std::move(calls));
}

// True if a program without code of its own would also have this pause.
// `own_ns` is the part of it outside the optimizer's calls.
bool MayBeTheFramework(const AnalysisContext& m, const Segment& pause,
                       int64_t own_ns) {
  if (own_ns <= kFrameworkGapNs) return true;
  if (own_ns > kSeamNs) return IsInOptimizer(m, pause);
  return IsAtStepMark(m, pause) || IsAtBackward(m, pause) ||
         IsInOptimizer(m, pause);
}

// An op of the host that takes this long fills some 10 MB or more, which the
// system takes back page by page once a later tensor replaces it.
constexpr int64_t kFillsMuchNs = 1'000'000;

// How many ops may have filled what a pause frees. Our own choice.
constexpr int kFillers = 4;

// Tells pauses of a run with a GPU in which large tensors of the host may be
// freed: right after ops that compute in the host's memory for at least as
// long. Freeing takes no longer than filling. The rule host-compute is about
// such ops.
class Freeing {
 public:
  explicit Freeing(const AnalysisContext& context)
      : m_(context), calls_device_(OpsThatCall(context.trace)) {}

  bool operator()(const Segment& pause) const {
    int64_t filling_ns = 0, time_ns = pause.begin_ns;
    for (int i = 0; i < kFillers; ++i) {
      const RowId before = OpBefore(m_, time_ns);
      if (before == kNone || calls_device_[before]) return false;
      const Op& op = m_.trace.ops()[before];
      filling_ns += op.end_ns - op.begin_ns;
      if (filling_ns >= std::max(kFillsMuchNs, pause.length())) return true;
      time_ns = op.begin_ns;
    }
    return false;
  }

 private:
  const AnalysisContext& m_;
  std::vector<bool> calls_device_;  // by op
};

// Returns `own_ns` without the time in which the profiler records the Python
// frames that begin in `pause`.
double WithoutFrames(const AnalysisContext& m, const Segment& pause,
                     int64_t own_ns) {
  const auto ns = static_cast<double>(own_ns);
  if (m.recorder.frame_ns <= 0) return ns;
  const double frames =
      FramesIn(m.trace, m.steps.thread, {pause.begin_ns, pause.end_ns});
  return std::max(0.0, ns - frames * m.recorder.frame_ns);
}

struct Pause {
  size_t step = 0;  // index of its timeline
  Segment segment = {};
  double ns = 0;     // outside the optimizer's calls
  double idle = 1;   // the share of `segment` in which the GPU is idle
  NameId next = 0;   // the op after it; 0 if none
  size_t place = 0;  // how many ops of the step come before it
};

// Another program seldom keeps a core for longer than a few time slices of the
// scheduler (some 3 to 10 ms each).
constexpr int64_t kInterruptionNs = 30'000'000;

// If the median step pauses before an op for less than this share of the mean,
// a few long pauses make up most of the time there.
constexpr double kLeastOfMean = 0.5;

// If a few steps have most of the time before an op, shortens the pauses there
// so that they add up to the median step's time, and drops them if most steps
// have none. A program that runs the same code in each step pauses before the
// same ops for about as long. Another program that takes the core interrupts it
// anywhere.
void TakeMedians(size_t steps, std::vector<Pause>& pauses, OwnCode& code) {
  std::map<NameId, std::vector<double>> by_next;  // each by step
  for (const Pause& pause : pauses) {
    std::vector<double>& by_step = by_next[pause.next];
    by_step.resize(steps);
    by_step[pause.step] += pause.ns;
  }
  std::map<NameId, double> left;
  for (auto& [next, by_step] : by_next) {
    const double sum = std::accumulate(by_step.begin(), by_step.end(), 0.0);
    const double usual =
        Median(by_step) * static_cast<double>(steps) / std::max(sum, 1.0);
    left[next] = usual >= kLeastOfMean ? 1 : usual;
  }
  std::set<size_t> places;  // of interruptions
  for (Pause& pause : pauses) {
    const double share = left[pause.next];
    if (share < 1 && pause.segment.length() >= kInterruptionNs) {
      code.interrupted_ns +=
          pause.idle * pause.ns * (1 - share) / static_cast<double>(steps);
      ++code.interruptions;
      places.insert(pause.place);
      if (pause.segment.length() > code.longest_interruption.length()) {
        code.longest_interruption = {pause.segment.begin_ns,
                                     pause.segment.end_ns};
      }
    }
    pause.ns *= share;
  }
  // If some steps pause at the same place, the program causes it: a stall.
  if (3 * static_cast<int64_t>(places.size()) < 2 * code.interruptions) {
    code.interrupted_ns = 0;
    code.interruptions = 0;
  }
  std::erase_if(pauses, [](const Pause& pause) { return pause.ns <= 0; });
}

std::string PlaceOf(const AnalysisContext& m, const CallSites& sites,
                    const Segment& pause) {
  const int64_t middle = pause.begin_ns + pause.length() / 2;
  std::string source = sites.Source(m.steps.thread, middle, kNone);
  if (!source.empty()) return "at " + source;
  const RowId before = OpBefore(m, pause.begin_ns);
  const RowId after = OpAfter(m, pause.end_ns);
  if (after != kNone) {
    source = sites.Source(m.steps.thread, pause.end_ns, after);
    if (!source.empty()) return "before " + source;
  }
  const auto name = [&](RowId row) {
    return std::string(m.trace.name(m.trace.ops()[row].name));
  };
  if (before == kNone || after == kNone) {
    return before == kNone ? "before the first op" : "after the last op";
  }
  return "between " + name(before) + " and " + name(after);
}

}  // namespace

OwnCode MeasureOwnCode(const AnalysisContext& m, bool with_places) {
  OwnCode code;
  if (m.steps.thread == kNone || m.steps.steady.empty()) return code;
  std::vector<Span> saving = SavingSpans(m.trace, m.steps.thread);
  for (const StateRead& read : FindStateReads(m)) saving.push_back(read.span);
  saving = Merge(std::move(saving));
  const std::vector<Span> optimizer = OptimizerCalls(m);
  std::optional<CallSites> sites;
  if (with_places) sites.emplace(m.trace);
  const double steps = static_cast<double>(m.steps.steady.size());
  const std::vector<Span> idle =
      m.has_gpu ? Merge(IdleSpans(m.waits.idle)) : std::vector<Span>();
  std::optional<Freeing> frees;
  if (m.has_gpu) frees.emplace(m);
  std::vector<double> by_step;
  std::vector<Pause> pauses;
  std::vector<std::vector<Segment>> made;
  if (m.has_gpu) made = HostTimelines(m);
  for (const auto& timeline : m.has_gpu ? made : m.timelines) {
    const size_t step = by_step.size();
    by_step.push_back(0);
    for (const Segment& segment : timeline) {
      if (segment.cause != Cause::kHostCode) continue;
      const auto whole_ns = static_cast<double>(segment.length());
      if (MayBeTheFramework(m, segment, segment.length()) ||
          (frees && (*frees)(segment))) {
        continue;
      }
      if (LengthIn(saving, {segment.begin_ns, segment.end_ns}) > 0) {
        if (!m.has_gpu) code.saving_ns += whole_ns / steps;
        continue;
      }
      const double idle_share =
          m.has_gpu ? static_cast<double>(
                          LengthIn(idle, {segment.begin_ns, segment.end_ns})) /
                          whole_ns
                    : 1;
      const int64_t own_ns =
          segment.length() -
          LengthIn(optimizer, {segment.begin_ns, segment.end_ns});
      if (MayBeTheFramework(m, segment, own_ns)) {
        code.optimizer_delay_ns += idle_share * whole_ns / steps;
        continue;
      }
      code.optimizer_delay_ns +=
          idle_share * (whole_ns - static_cast<double>(own_ns)) / steps;
      const double ns = WithoutFrames(m, segment, own_ns);
      const RowId next = OpAfter(m, segment.end_ns);
      pauses.push_back({step, segment, ns, idle_share,
                        next == kNone ? 0 : m.trace.ops()[next].name,
                        FirstOpFrom(m, segment.end_ns) -
                            FirstOpFrom(m, timeline.front().begin_ns)});
    }
  }
  TakeMedians(by_step.size(), pauses, code);
  std::map<std::string, OwnCodePlace> places;
  for (const Pause& pause : pauses) {
    by_step[pause.step] += pause.ns;
    code.ns += pause.ns / steps;
    code.delay_ns += pause.idle * pause.ns / steps;
    code.pauses += 1 / steps;
    if (!sites) continue;
    std::string name = PlaceOf(m, *sites, pause.segment);
    OwnCodePlace& place = places[name];
    place.name = std::move(name);
    place.ns += pause.ns / steps;
    if (pause.segment.length() > place.longest.length()) {
      place.longest = {pause.segment.begin_ns, pause.segment.end_ns};
    }
  }
  for (double own : by_step) code.steps_frac += (own >= code.ns / 2) / steps;
  for (auto& [name, place] : places) code.places.push_back(std::move(place));
  std::ranges::stable_sort(code.places, std::greater(), &OwnCodePlace::ns);
  return code;
}

}  // namespace stepscope
