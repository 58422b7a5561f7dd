// Does the host launch work too slowly? Sources: "Optimization and Performance
// Tuning with PyTorch", section 3 (CUDA graphs); the ResNet-18 case study, step
// 7 (torch.compile). The threshold of 10 % lies between what XProf calls
// moderate and high. Fewer than 200 ops, at 5 to 10 us each, cost at most 1 to
// 2 ms.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "device/gaps.h"
#include "evidence/call_site.h"
#include "evidence/gradient_passes.h"
#include "evidence/launches.h"
#include "evidence/program/own_code.h"
#include "evidence/recording_load.h"
#include "ops/by_name.h"
#include "steps/steady_steps.h"
#include "steps/step_window.h"
#include "steps/steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace launching_rules {
namespace {

// On a host with spare cores, a recorded launch call takes 3 to 10 us and
// hardly varies (medians of traces from seven hosts). If calls take longer, and
// some much longer than others, the thread is interrupted.
constexpr double kSlowLaunchNs = 10'000;
constexpr double kInterrupted = 1.3;  // mean / median
// The least number of launches between two waits. If fewer can be captured or
// compiled as one piece, the gain is unknown. Our own choice.
constexpr double kLeastPiece = 50;
constexpr double kShare = 0.10;
constexpr double kLaunches = 200;
constexpr double kCompiledOpNs = 2'000;
// The time from one kernel of a CUDA graph to the next ("Getting Started with
// CUDA Graphs", NVIDIA: 0.5 us for kernels of 2.9 us). Some devices need twice
// that.
constexpr double kGraphGapNs = 1'000;
// Starting an op or a kernel takes some 5 to 20 us. Time beyond this limit per
// call is spent on something else.
constexpr double kMostPerCallNs = 30'000;
// On a CPU the framework always takes some time. From this share of the step
// on, it sets the pace.
constexpr double kShareOfCpuStep = 0.3;
constexpr size_t kRegionsShown = 3;
// An op of an extension causes the launches if it makes this share of them, so
// many in each call, in so many calls per step as a model has layers. Our own
// choice: a layer's op takes one to three kernels.
constexpr double kMostLaunches = 0.5;
constexpr double kManyPerCall = 8;
constexpr double kLayers = 8;

// Names the two ops with the most framework time.
std::string WorstOps(const AnalysisContext& m) {
  std::map<NameId, int64_t> self;
  for (const auto& timeline : m.timelines) {
    for (const Segment& segment : timeline) {
      if (segment.cause == Cause::kDispatch && segment.op != kNone) {
        self[m.trace.ops()[segment.op].name] += segment.length();
      }
    }
  }
  std::vector<std::pair<int64_t, NameId>> order;
  order.reserve(self.size());
  for (const auto& [name, ns] : self) order.push_back({-ns, name});
  std::ranges::sort(order);
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(2, order.size()); ++i) {
    const double ms = -order[i].first * 1e-6 / m.timelines.size();
    text += (i ? ", " : "") + std::string(m.trace.name(order[i].second)) +
            " (" + Milliseconds(ms) + ")";
  }
  return text;
}

std::string_view WithoutEngine(std::string_view name) {
  constexpr std::string_view kEngine = "autograd::engine::evaluate_function: ";
  if (name.starts_with(kEngine)) name.remove_prefix(kEngine.size());
  return name;
}

// Returns the nested ranges of each thread that name a place in the program.
Nesting PlacesOf(const Trace& trace) {
  std::vector<std::vector<Nesting::Row>> by_thread(trace.threads().size());
  for (RowId row = 0; row < trace.ranges().size(); ++row) {
    const Range& range = trace.ranges()[row];
    const bool place =
        range.kind == RangeKind::kModule || range.kind == RangeKind::kPhase ||
        range.kind == RangeKind::kOptimizer || range.kind == RangeKind::kUser ||
        range.kind == RangeKind::kNvtx;
    if (range.thread == kNone || !place) continue;
    by_thread[range.thread].push_back({{range.begin_ns, range.end_ns}, row});
  }
  return Nesting(std::move(by_thread));
}

// Returns the innermost range around a launch and the outermost op that issued
// it, such as "forward > aten::conv2d".
std::string RegionOf(const Trace& trace, const Nesting& places,
                     const RuntimeCall& call) {
  std::string region;
  if (call.thread != kNone) {
    const std::vector<RowId> open = places.At(call.thread, call.begin_ns);
    if (!open.empty()) region = trace.name(trace.ranges()[open[0]].name);
  }
  RowId op = call.op;
  while (op != kNone && trace.ops()[op].parent != kNone) {
    op = trace.ops()[op].parent;
  }
  if (op == kNone) return region.empty() ? "code outside ops" : region;
  if (!region.empty()) region += " > ";
  return region + std::string(WithoutEngine(trace.name(trace.ops()[op].name)));
}

// Returns where most launches of the steady steps come from, such as
// "aten::add_ (161 launches per step), aten::mul_ (80)". `per` follows the
// first count: " per step".
std::string WorstRegions(const Trace& trace, const Steps& in,
                         const std::string& per) {
  std::vector<bool> launches(trace.runtime_calls().size());
  const auto note = [&](const DeviceWork& work) {
    if (work.call != kNone) launches[work.call] = true;
  };
  for (const Kernel& work : trace.kernels()) note(work);
  for (const Copy& work : trace.copies()) note(work);
  for (const Memset& work : trace.memsets()) note(work);
  const Nesting places = PlacesOf(trace);
  std::map<std::string, int64_t> counts;
  for (size_t i : in.steady) {
    const Span& host = in.windows[i].host;
    const auto calls = trace.runtime_calls();
    auto it = std::ranges::lower_bound(calls, host.begin_ns, {},
                                       &RuntimeCall::begin_ns);
    for (; it != calls.end() && it->begin_ns < host.end_ns; ++it) {
      if (!launches[static_cast<size_t>(it - calls.begin())]) continue;
      ++counts[RegionOf(trace, places, *it)];
    }
  }
  std::vector<std::pair<int64_t, std::string>> order;
  order.reserve(counts.size());
  for (const auto& [region, count] : counts) order.push_back({-count, region});
  std::ranges::sort(order);
  const double steps = static_cast<double>(in.steady.size());
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(kRegionsShown, order.size()); ++i) {
    const int64_t count = std::llround(-order[i].first / steps);
    text +=
        (i ? ", " : "") + order[i].second + " (" +
        (i ? std::to_string(count) : Count(count, "launch", "launches") + per) +
        ")";
  }
  return text;
}

// An op of an extension that makes most of a step's launches.
struct ManyKernels {
  NameId name = 0;
  double calls = 0, launches = 0;  // per steady step
};

// True for ops that neither PyTorch nor its engines define: those of extensions
// and autograd functions written in Python.
bool IsOfExtension(std::string_view name) {
  return std::ranges::none_of(
      std::initializer_list<std::string_view>{
          "aten::", "autograd::", "torch::", "c10d::", "c10::", "prim::",
          "inductor::", "Torch-Compiled", "## ", "triton", "Optimizer",
          "CompiledFunction", "CheckpointFunction"},
      [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Returns the op of an extension that makes most launches, if it makes many in
// each call.
std::optional<ManyKernels> FindManyKernels(const AnalysisContext& m) {
  std::map<RowId, double> by_op;  // launches in each call
  double all = 0;
  ByName<bool> of_extension(m.trace, &IsOfExtension);
  const auto counts = [&](const Op& op) {
    return op.kind == OpKind::kOperator && of_extension(op.name);
  };
  for (const KernelUse& use : m.kernels.uses) {
    RowId op = m.trace.kernels()[use.kernel].op;
    all += 1;
    while (op != kNone && !counts(m.trace.ops()[op])) {
      op = m.trace.ops()[op].parent;
    }
    if (op != kNone) by_op[op] += 1;
  }
  std::map<NameId, ManyKernels> by_name;
  for (const auto& [op, launches] : by_op) {
    ManyKernels& one = by_name[m.trace.ops()[op].name];
    one.name = m.trace.ops()[op].name;
    one.calls += 1 / m.kernels.steps;
    one.launches += launches / m.kernels.steps;
  }
  for (const auto& [name, one] : by_name) {
    if (one.calls >= kLayers &&
        one.launches >= kMostLaunches * all / m.kernels.steps &&
        one.launches >= kManyPerCall * one.calls) {
      return one;
    }
  }
  return {};
}

// Says that an extension makes the launches, which a graph of the step would
// only hide.
void SayManyKernels(const Trace& trace, const ManyKernels& many,
                    Finding& finding) {
  const std::string name(trace.name(many.name));
  finding.evidence +=
      " " + name + " makes " + Number(many.launches) + " of them, " +
      MeanCount(many.launches / many.calls, "launch", "launches") +
      " in each of " + MeanCount(many.calls, "call") + ".";
  const bool eight_bit = name == "MatMul8bitLt";
  const std::string other =
      eight_bit
          ? "load the weights in bfloat16, or with 4 bits, where a layer takes "
            "one or two kernels: 8-bit layers with outliers (bitsandbytes) "
            "save memory, not time"
          : "use an implementation of " + name + " with fewer kernels";
  finding.fix_cpp = other;
  finding.fix_python = other + "; or torch.compile() it";
  if (eight_bit) finding.fix_python = other;
}

// Returns how much longer the recorded step is than the unrecorded steps before
// it, without the time of the recorder's own events. 0 if that is unknown.
double AddedByRecordingNs(const AnalysisContext& m) {
  const std::optional<WaitedSteps> steps = CompareWithWaitSteps(m);
  if (!steps) return 0;
  return std::max(0.0, steps->recorded_ns - steps->delay_ns -
                           steps->unrecorded_ns - m.MeanNs(Cause::kProfiler));
}

// How long the calls that launch kernels take.
struct LaunchCalls {
  double median_ns = 0, mean_ns = 0;
  bool interrupted() const {
    return median_ns >= kSlowLaunchNs && mean_ns >= kInterrupted * median_ns;
  }
};

LaunchCalls MeasureLaunchCalls(const AnalysisContext& m) {
  std::vector<double> lengths;
  LaunchCalls found;
  for (const KernelUse& use : m.kernels.uses) {
    const RowId row = m.trace.kernels()[use.kernel].call;
    if (row == kNone || InGraph(m.trace, {ActivityTable::kKernel, use.kernel}))
      continue;
    const RuntimeCall& call = m.trace.runtime_calls()[row];
    lengths.push_back(static_cast<double>(call.end_ns - call.begin_ns));
    found.mean_ns += lengths.back();
  }
  if (lengths.empty()) return found;
  found.mean_ns /= static_cast<double>(lengths.size());
  found.median_ns = Median(std::move(lengths));
  return found;
}

// Returns how often per step the host waits for results inside ops. Each wait
// ends what can be captured or compiled as one piece.
double WaitsPerStep(const AnalysisContext& m) {
  return SumWaits(m.waits, m.steps,
                  [](const HostWait& one) {
                    return one.kind == WaitKind::kToHost ||
                           one.kind == WaitKind::kInOp;
                  })
      .count;
}

// The time for starting ops and kernels, per step.
struct Launching {
  double calls = 0;
  double dispatch_ns = 0, host_ns = 0;  // inside ops and between them
  double starting_ns = 0;  // the most that starting the calls takes, of both
  double added_ns = 0;     // the part of it that recording adds
  double one_off_ns = 0;   // the part of it that loads kernels
  double latency_ns = 0;   // from late launches to the starts of their kernels
  double idle_ns() const { return dispatch_ns + host_ns; }
  double own_ns() const {
    return std::max(0.0, starting_ns - added_ns - one_off_ns);
  }
};

// Returns the time per step in which a device waits for a thread that loads
// kernels. No later step does so again. Calls of the allocator are no
// launching.
double OneOffNs(const AnalysisContext& m) {
  const std::vector<Span> waited =
      Intersect(OneOffSpans(m.trace), IdleSpans(m.waits.idle));
  double ns = 0;
  for (size_t i : m.steps.steady) {
    ns += static_cast<double>(LengthIn(waited, m.steps.windows[i].host));
  }
  ns /= static_cast<double>(m.steps.steady.size());
  return std::max(0.0, ns - m.MeanNs(Cause::kAllocator));
}

// Returns nullopt if ops and the code between them take too little time to
// matter.
std::optional<Launching> MeasureLaunching(const AnalysisContext& m) {
  Launching found{.calls = m.CallsPerStep(),
                  .dispatch_ns = m.MeanNs(Cause::kDispatch),
                  .host_ns = m.MeanNs(Cause::kHostCode)};
  const double least = kShare * m.step_ns();
  // Return early, because MeasureOwnCode() takes long. Without recorded launch
  // calls, nothing shows when the host launches.
  if (found.idle_ns() < least || found.calls < 1 ||
      (!m.has_gpu && found.calls < kLaunches) ||
      m.ShareOfStepsWith(Cause::kDispatch, 0) < kMostSteps) {
    return {};
  }
  // Longer pauses free gradients or are the program's own code, which
  // python-between-ops reports.
  const OwnCode code = MeasureOwnCode(m, /*with_places=*/false);
  found.host_ns -= std::min(
      found.host_ns, code.delay_ns + code.optimizer_delay_ns + code.saving_ns);
  // A CUDA graph removes everything that ops do on the host. Compiling does
  // not.
  const double most = kMostPerCallNs * found.calls;
  found.starting_ns = m.has_gpu
                          ? found.dispatch_ns + std::min(found.host_ns, most)
                          : std::min(found.idle_ns(), most);
  if (m.has_gpu) {
    // Recording lengthens the step in this time.
    found.added_ns = AddedByRecordingNs(m);
    found.one_off_ns = OneOffNs(m);
    // If the GPU has run dry, a kernel starts some us after its launch. If the
    // GPU never waited for a launch, the kernel would already be queued.
    found.latency_ns = std::max(
        0.0, m.MeanNs(Cause::kKernelLatency) - kGraphGapNs * found.calls);
  }
  if (found.own_ns() < least) return {};
  return found;
}

// "4.19 ms inside ops, 1.60 ms in code between them", without a part of 0 ms.
std::string PartsOf(const Launching& launching) {
  const double inside_ms = launching.dispatch_ns * 1e-6;
  const double between_ms = launching.host_ns * 1e-6;
  if (Number(inside_ms) == "0") {
    return Milliseconds(between_ms) + " in code between ops";
  }
  std::string text = Milliseconds(inside_ms) + " inside ops";
  if (Number(between_ms) != "0") {
    text += ", " + Milliseconds(between_ms) + " in code between them";
  }
  return text;
}

std::string EvidenceOf(const AnalysisContext& m, const Launching& launching) {
  const double step = m.step_ns();
  std::string text =
      std::string(m.has_gpu ? "The GPU is idle for "
                            : "Framework and host code take ") +
      Milliseconds(launching.idle_ns() * 1e-6) + " of the " +
      Milliseconds(step * 1e-6) + " step (" +
      Percent(launching.idle_ns() / step) + ") " +
      (m.has_gpu ? "while the host issues " : "to run ") +
      (m.has_gpu ? Count(std::llround(launching.calls), "launch", "launches")
                 : Count(std::llround(launching.calls), "op")) +
      ": " + PartsOf(launching) + ", not counting pauses of more than 50 us.";
  if (launching.starting_ns < launching.idle_ns()) {
    text +=
        m.has_gpu
            ? " Of that code, " +
                  Milliseconds((launching.starting_ns - launching.dispatch_ns) *
                               1e-6) +
                  " count as launching (at most 30 us per launch)"
            : " At 30 us each, starting these takes at most " +
                  Milliseconds(launching.starting_ns * 1e-6);
    text += "; the rest is the program's own code.";
  }
  if (launching.latency_ns >= kShare * launching.own_ns()) {
    text += " Another " + Milliseconds(launching.latency_ns * 1e-6) +
            " pass between these launches and the starts of their kernels.";
  }
  if (launching.added_ns > 0) {
    text += " Recording adds " + Milliseconds(launching.added_ns * 1e-6) +
            ", which is left out of the gain.";
  }
  if (launching.one_off_ns > 0) {
    text += " Loading kernels takes " +
            Milliseconds(launching.one_off_ns * 1e-6) +
            " of it, which no later step does again, and is left out as well.";
  }
  return text;
}

void SayFix(const AnalysisContext& m, Finding& finding) {
  // AOTInductor compiles forward passes only.
  const bool trains = Trains(m.trace);
  if (m.has_gpu) {
    finding.fix_cpp = std::string(
                          "capture the step in an at::cuda::CUDAGraph "
                          "(static shapes, no synchronisation "
                          "inside)") +
                      (trains ? "" : ", or run an AOTInductor module");
    finding.fix_python = "torch.compile(model, mode=\"reduce-overhead\")";
    return;
  }
  finding.fix_cpp = std::string(trains ? "run the model as a scripted module"
                                       : "run the model as an AOTInductor or "
                                         "scripted module") +
                    "; use fewer, larger ops or a larger batch";
  finding.fix_python = "torch.compile(model)";
}

// Adds that other threads interrupt launch calls.
void SayInterrupted(const LaunchCalls& calls, Finding& finding) {
  finding.evidence +=
      " A launch call takes " + Number(calls.median_ns * 1e-3) +
      " us in the median and " + Number(calls.mean_ns * 1e-3) +
      " us in the mean, where 3 to 10 us are usual: other work may keep the "
      "cores busy.";
  constexpr char kFirst[] =
      "first see whether loader workers, threads of other libraries or other "
      "processes compete for the cores, and give training its own; then ";
  finding.fix_cpp = kFirst + finding.fix_cpp;
  finding.fix_python = kFirst + finding.fix_python;
}

Verdict CheckLaunchBound(const AnalysisContext& m) {
  const std::optional<Launching> launching = MeasureLaunching(m);
  if (!launching) return Clean();
  double bucket = launching->own_ns() + launching->latency_ns;
  Finding finding;
  // No recording shows whether compiled code is faster on a CPU.
  finding.confidence = m.has_gpu ? Confidence::kStrong : Confidence::kHint;
  finding.evidence = EvidenceOf(m, *launching);
  finding.where =
      m.has_gpu ? WorstRegions(m.trace, m.steps, " per step") : WorstOps(m);
  finding.assumption = m.has_gpu
                           ? "at best: the GPU never waits for a launch, and "
                             "goes from one kernel to the next in 1 us"
                           : "compiled code takes 2 us per op; the program's "
                             "own code between ops does not change";
  SayFix(m, finding);
  if (m.has_gpu) {
    const LaunchCalls took = MeasureLaunchCalls(m);
    if (took.interrupted()) SayInterrupted(took, finding);
  }
  finding.wrong_if = "the program does work of its own between ops";
  // Waits, and launches that vary in each step, prevent a graph of the step.
  // They must be fixed first, and how much a graph then gains is unknown.
  std::vector<Alternative> alternatives = {
      {Edit{.dispatch_ns = kCompiledOpNs}}};
  const std::optional<ManyKernels> many =
      m.has_gpu ? FindManyKernels(m) : std::nullopt;
  const double waits = m.has_gpu ? WaitsPerStep(m) : 0;
  if (many) {
    SayManyKernels(m.trace, *many, finding);
    alternatives.clear();
  } else if (waits > 0 && launching->calls < kLeastPiece * waits) {
    finding.evidence += " " + MeanCount(waits, "wait") +
                        " for results per step end what can be compiled or "
                        "captured: see host-sync first.";
    alternatives.clear();
    finding.confidence = Confidence::kHint;
  } else if (m.has_gpu && m.steps.steady.size() > 1 && StepsAlike(m) == 1) {
    finding.evidence +=
        " No two steps launch the same kernels and grids, so that a graph, or "
        "what is compiled for one step, does not fit the next.";
    finding.fix_python = "torch.compile(model, dynamic=True)";
    alternatives.clear();
    finding.confidence = Confidence::kHint;
  }
  // Collectives that are launched late end late, on all ranks. Replay tells how
  // much of their time that is.
  const double delayed_ns = alternatives.empty() || m.collectives.empty()
                                ? 0
                                : m.MeanNs(Cause::kCommunication);
  if (delayed_ns > 0) {
    bucket += delayed_ns;
    finding.evidence +=
        " Late launches also delay collectives, during which the GPU does not "
        "compute for " +
        Milliseconds(delayed_ns * 1e-6) + ".";
  }
  return Fire(
      Found{.finding = std::move(finding),
            .alternatives = std::move(alternatives),
            .bound_ns = bucket,
            .choice = Choice::kWithinBound,
            .at_most = m.has_gpu || bucket >= kShareOfCpuStep * m.step_ns()
                           ? FindingSeverity::kCritical
                           : FindingSeverity::kLow});
}

constexpr Rule kRules[] = {
    {.id = "launch-bound",
     .question = "Do framework code and host code between ops delay the step?",
     .needs = {Kind::kOp},
     .causes = {Cause::kDispatch, Cause::kHostCode, Cause::kKernelLatency},
     .check = &CheckLaunchBound,
     .reference = "Optimization and Performance Tuning with PyTorch, section "
                  "3: CUDA graphs and torch.compile",
     .detect = "framework code in ops and host code between them take 10 % of "
               "the step (between what XProf calls moderate and high), at no "
               "more than 30 us per launch or op; on a CPU with at least 200 "
               "ops per step, and as a hint (low below 30 %)",
     .avoid = "waits, data loading, the garbage collector or the allocator "
              "cause the idle time. If half of the launches come from an "
              "extension's op that makes 8 or more in each of 8 or more calls "
              "per step, another implementation of that op is advised",
     .fix_cpp =
         "at::cuda::CUDAGraph, AOTInductor (inference), fewer and larger ops",
     .fix_python = "torch.compile(mode=\"reduce-overhead\"), a larger batch"}};

}  // namespace
}  // namespace launching_rules

extern const std::span<const Rule> kLaunching = launching_rules::kRules;

}  // namespace stepscope
