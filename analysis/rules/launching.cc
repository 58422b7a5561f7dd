// Does the host take too long to get work going?
// Sources: "Optimization and Performance Tuning with PyTorch", section 3 (CUDA
// graphs); the ResNet-18 case study, step 7 (torch.compile). 10 % lies between
// XProf's moderate and high; at 5 to 10 us per op fewer than 200 cannot cost
// more than 1 to 2 ms.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/call_site.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr double kShare = 0.10;
constexpr double kLaunches = 200;
// What runs once, as much of a recording without steps may, is slow to launch.
constexpr double kShareOfRecording = 0.5;
constexpr double kCompiledOpNs = 2'000;
constexpr size_t kRegionsShown = 3;

// The ops under which most framework time passes.
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

// The ranges of each thread that say where in the program it is.
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

// "forward > aten::conv2d": the innermost range around a launch and the
// outermost op that it comes from.
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
  if (op == kNone) return region.empty() ? "code outside of ops" : region;
  if (!region.empty()) region += " > ";
  return region + std::string(WithoutEngine(trace.name(trace.ops()[op].name)));
}

// Where most launches of the steady steps come from. `unit`: "launches per
// step".
std::string WorstRegions(const Trace& trace, const Steps& in,
                         const std::string& unit) {
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
  for (const auto& [region, count] : counts) order.push_back({-count, region});
  std::ranges::sort(order);
  const double steps = static_cast<double>(in.steady.size());
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(kRegionsShown, order.size()); ++i) {
    text += (i ? ", " : "") + order[i].second + " (" +
            std::to_string(std::llround(-order[i].first / steps)) +
            (i ? ")" : " " + unit + ")");
  }
  return text;
}

// From the first launch to the end of the last work, as if it were one step.
Steps WholeRecording(const AnalysisContext& m) {
  Steps whole;
  whole.thread = m.steps.thread;
  Span span{std::numeric_limits<int64_t>::max(), 0};
  const auto add = [&](const DeviceWork& work) {
    const int64_t begin = work.call == kNone
                              ? work.begin_ns
                              : m.trace.runtime_calls()[work.call].begin_ns;
    span.begin_ns = std::min(span.begin_ns, begin);
    span.end_ns = std::max(span.end_ns, work.end_ns);
  };
  for (const Kernel& work : m.trace.kernels()) add(work);
  for (const Copy& work : m.trace.copies()) add(work);
  for (const Memset& work : m.trace.memsets()) add(work);
  whole.windows.push_back({.host = span, .tiled = span});
  whole.steady.push_back(0);
  return whole;
}

// Without steps it can be told that the host holds the device up, but not what
// a step would win.
Verdict CheckWholeRecording(const AnalysisContext& m) {
  if (!m.has_gpu) {
    return Skip(
        "no steps were found: call Step() once per iteration, or prof.step() "
        "in Python");
  }
  const Steps whole = WholeRecording(m);
  const DeviceLedger ledger = MakeDeviceLedger(m.trace, m.tree, whole);
  const CauseTimes& split = ledger.splits[0];
  const double length = static_cast<double>(whole.windows[0].tiled.length());
  const double bucket =
      static_cast<double>(split[Cause::kDispatch] + split[Cause::kHostCode]);
  if (bucket < kShareOfRecording * length ||
      ledger.launches_per_step < kLaunches) {
    return Clean();
  }
  Finding finding;
  finding.confidence = Confidence::kHint;
  finding.evidence = "No steps were marked. Over the whole recording of " +
                     Milliseconds(length * 1e-6) + " the GPU is idle for " +
                     Milliseconds(bucket * 1e-6) + " (" +
                     Percent(bucket / length) + ") while the host gets " +
                     Count(ledger.launches_per_step, "launch", "launches") +
                     " going.";
  finding.where = WorstRegions(m.trace, whole, "launches");
  finding.fix_cpp =
      "a larger batch; capture the step in an at::cuda::CUDAGraph; and "
      "profile.Step() once per iteration, to learn what it would bring";
  finding.fix_python =
      "a larger batch; torch.compile(model, mode=\"reduce-overhead\"); and "
      "prof.step() once per iteration, to learn what it would bring";
  finding.wrong_if = "what was recorded runs only once, as a set-up does";
  return Fire(Found{.finding = std::move(finding), .regardless = true});
}

Verdict CheckLaunchBound(const AnalysisContext& m) {
  if (m.steps.empty()) return CheckWholeRecording(m);
  const double step = m.step_ns();
  const double dispatch = m.MeanNs(Cause::kDispatch);
  const double host_code = m.MeanNs(Cause::kHostCode);
  const double bucket = dispatch + host_code;
  const double calls = m.CallsPerStep();
  if (bucket < kShare * step || calls < kLaunches ||
      m.ShareOfStepsWith(Cause::kDispatch, 0) < 2.0 / 3) {
    return Clean();
  }
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      std::string(m.has_gpu ? "The GPU is idle for " : "The step spends ") +
      Milliseconds(bucket * 1e-6) + " of the " + Milliseconds(step * 1e-6) +
      " step (" + Percent(bucket / step) + ") " +
      (m.has_gpu ? "while the host gets " : "getting ") +
      (m.has_gpu ? Count(std::llround(calls), "launch", "launches")
                 : Count(std::llround(calls), "op")) +
      " going: " + Milliseconds(dispatch * 1e-6) + " inside ops, " +
      Milliseconds(host_code * 1e-6) + " in code between them.";
  finding.where = m.has_gpu
                      ? WorstRegions(m.trace, m.steps, "launches per step")
                      : WorstOps(m);
  finding.assumption = m.has_gpu
                           ? "at best: the GPU never waits for a launch"
                           : "compiled code needs 2 us per op; code of your "
                             "own between ops stays as it is";
  finding.fix_cpp =
      m.has_gpu ? "capture the step in an at::cuda::CUDAGraph (static shapes, "
                  "no synchronisation inside), or run an AOTInductor module"
                : "run the model as an AOTInductor or scripted module; fewer, "
                  "larger ops; a bigger batch";
  finding.fix_python = m.has_gpu
                           ? "torch.compile(model, mode=\"reduce-overhead\")"
                           : "torch.compile(model)";
  finding.wrong_if = "the time between ops is work of your own, not waiting";
  return Fire(std::move(finding), Edit{.dispatch_ns = kCompiledOpNs}, bucket);
}

constexpr Rule kRules[] = {
    {.id = "launch-bound",
     .question = "Does framework and host code between ops hold the step up?",
     .needs_steps = false,
     .needs = {Kind::kOp},
     .check = &CheckLaunchBound,
     .reference = "Optimization and Performance Tuning with PyTorch, section "
                  "3: CUDA graphs and torch.compile",
     .detect = "dispatch and host code between ops take 10 % of the step "
               "(between XProf's moderate and high), in at least 200 launches "
               "or ops per step",
     .avoid = "idle time that waits, loading, the garbage collector or the "
              "allocator own",
     .fix_cpp = "at::cuda::CUDAGraph, AOTInductor, fewer and larger ops",
     .fix_python = "torch.compile(mode=\"reduce-overhead\"), a larger "
                   "batch"}};

}  // namespace

extern const std::span<const Rule> kLaunching = kRules;

}  // namespace stepscope
