// What prevents CUDA graphs, and what is lost inside them? Sources: CUDA C++
// Programming Guide, "CUDA Graphs"; PyTorch's notes on CUDA semantics, "CUDA
// Graphs: constraints" (no synchronisation, no dynamic shapes, no host work
// during capture). 10 % is the share from which launch-bound advises graphs; 5
// % is the share of the step that a report must explain.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "device/allocator_calls.h"
#include "device/gaps.h"
#include "evidence/launches.h"
#include "evidence/wait_sites.h"
#include "ops/by_name.h"
#include "ops/contains.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace cuda_graphs_rules {
namespace {

constexpr double kLaunchShare = 0.10;
constexpr double kIdleShare = 0.05;
// Share of the launches of a step. Work before the first tenth or after the
// last tenth (the upload of a batch, reading the loss) can stay outside the
// graph.
constexpr double kMargin = 0.10;
constexpr size_t kShown = 2;
constexpr double kRecaptureShare = 0.01;  // as for other gains

// Returns the part of each steady step that a graph would contain; empty spans
// for other steps.
std::vector<Span> Captured(const AnalysisContext& m) {
  std::vector<Span> spans;
  for (const std::vector<int64_t>& times : LaunchTimes(m)) {
    const auto margin =
        static_cast<size_t>(kMargin * static_cast<double>(times.size()));
    spans.push_back(
        times.empty() ? Span()
                      : Span{times[margin], times[times.size() - 1 - margin]});
  }
  return spans;
}

class Obstacles {
 public:
  explicit Obstacles(const AnalysisContext& m)
      : m_(m), captured_(Captured(m)) {}

  // Returns, for example, "3 waits for the GPU per step (aten::item), ...";
  // empty if nothing prevents a graph.
  std::string InWords() {
    AddWaits();
    AddUploads();
    AddAllocations();
    AddVariation();
    return text_;
  }
  const std::set<std::string>& fixes() const { return fixes_; }
  std::vector<Example> examples;

 private:
  bool Inside(int64_t ns) const {
    const size_t step = SteadyStepAt(m_.steps, ns);
    return step < captured_.size() && captured_[step].begin_ns <= ns &&
           ns < captured_[step].end_ns;
  }
  double PerStep(double count) const {
    return count / static_cast<double>(m_.steps.steady.size());
  }
  void Add(const std::string& text, const char* fix) {
    text_ += (text_.empty() ? "" : "; ") + text;
    fixes_.insert(fix);
  }

  void AddWaits() {
    const WaitFilter inside = [&](const HostWait& wait) {
      // Leave out uploads, which AddUploads() counts, and the last wait of a
      // recording, which may be the recorder's own.
      return wait.kind != WaitKind::kToDevice && !wait.is_last &&
             Inside(wait.span.begin_ns);
    };
    const std::vector<WaitSite> sites = SitesOf(m_, inside);
    double count = 0;
    std::string where;
    for (size_t i = 0; i < sites.size(); ++i) {
      count += sites[i].per_step;
      if (i >= kShown) continue;
      where += (i > 0 ? ", " : "") + sites[i].chain;
      const HostWait& wait = m_.waits.all[sites[i].waits[0]];
      examples.push_back({m_.steps.windows[wait.step].number,
                          wait.span.begin_ns, wait.span.end_ns,
                          sites[i].chain});
    }
    if (sites.empty()) return;
    Add(MeanCount(count, "wait") + " for the GPU per step (" + where + ")",
        "keep values on the device, or read them after the graph");
  }

  // A copy from pageable memory returns only after it has been staged.
  void AddUploads() {
    double count = 0;
    for (const Copy& copy : m_.trace.copies()) {
      if (copy.source != MemoryKind::kPageable || copy.call == kNone) continue;
      count += Inside(m_.trace.runtime_calls()[copy.call].begin_ns);
    }
    if (count == 0) return;
    Add(MeanCount(PerStep(count), "copy", "copies") +
            " from pageable host memory per step between the launches",
        "copy inputs into fixed device tensors before the graph, and make "
        "constants on the device");
  }

  void AddAllocations() {
    double count = 0;
    ByName kind_of(m_.trace, &AllocatorCallOf);
    for (const RuntimeCall& call : m_.trace.runtime_calls()) {
      const std::optional<AllocatorCall> kind = kind_of(call.name);
      // Stream-ordered allocations can be captured.
      if (!kind || *kind == AllocatorCall::kStreamOrder) continue;
      count += Inside(call.begin_ns);
    }
    if (count == 0) return;
    Add(MeanCount(PerStep(count), "call") +
            " of the driver's allocator per step",
        "warm up until the caching allocator holds all memory");
  }

  void AddVariation() {
    if (m_.steps.steady.size() < 2) return;
    const size_t steps = m_.steps.steady.size(), most = StepsAlike(m_);
    if (most == steps) return;
    Add((most == 1 ? "no two" : "only " + std::to_string(most)) + " of " +
            std::to_string(steps) +
            " steps launch the same kernels and grids, because shapes or "
            "Python's branches vary",
        "pad inputs to a few sizes, with one graph for each");
  }

  const AnalysisContext& m_;
  const std::vector<Span> captured_;
  std::string text_;
  std::set<std::string> fixes_;
};

// True if launching on the host delays the device so much that launch-bound
// would advise CUDA graphs.
bool HostLaunchesLate(const AnalysisContext& m) {
  const double limit = kLaunchShare * m.step_ns();
  size_t steps = 0;
  double sum = 0;
  for (size_t i : m.steps.steady) {
    const double ns = static_cast<double>(m.splits[i][Cause::kDispatch] +
                                          m.splits[i][Cause::kHostCode]);
    sum += ns;
    steps += ns >= limit;
  }
  return sum >= limit * m.steps.steady.size() && AreMostSteps(m.steps, steps);
}

bool MostlyGraphs(const AnalysisContext& m) {
  size_t nodes = 0;
  for (const KernelUse& use : m.kernels.uses) {
    nodes += InGraph(m.trace, {ActivityTable::kKernel, use.kernel});
  }
  return 2 * nodes > m.kernels.uses.size();
}

Verdict CheckObstacles(const AnalysisContext& m) {
  if (!HostLaunchesLate(m) || MostlyGraphs(m)) return Clean();
  Obstacles obstacles(m);
  const std::string text = obstacles.InWords();
  if (text.empty()) return Clean();
  Finding finding;
  finding.status = FindingStatus::kWarning;
  finding.confidence = Confidence::kStrong;
  finding.examples = std::move(obstacles.examples);
  finding.evidence =
      "A CUDA graph of the whole step would save launches, but cannot be "
      "captured yet: " +
      text + ".";
  for (const std::string& fix : obstacles.fixes()) {
    finding.fix_cpp += (finding.fix_cpp.empty() ? "" : "; ") + fix;
  }
  finding.fix_python = finding.fix_cpp;
  finding.wrong_if =
      "only a part of the step without these is captured "
      "(torch.compile(mode=\"reduce-overhead\") does so by itself)";
  // launch-bound predicts the gain of a graph, so this finding claims none.
  return Fire(Found{.finding = std::move(finding), .regardless = true});
}

Verdict CheckGraphIdle(const AnalysisContext& m) {
  const double ns = m.MeanNs(Cause::kGraphOpaque);
  if (ns < kIdleShare * m.step_ns()) return Clean();
  std::map<std::string, int64_t> before;
  std::vector<std::pair<int64_t, const Gap*>> longest;
  for (const Gap& gap : m.waits.idle) {
    if (gap.host_late || gap.idle.length() <= kQueuedLatencyNs ||
        !InGraph(m.trace, gap.next) ||
        gap.next.table != ActivityTable::kKernel) {
      continue;
    }
    const size_t step =
        SteadyStepAt(m.steps, gap.idle.begin_ns, &StepWindow::tiled);
    if (step == m.steps.windows.size()) continue;
    const Kernel& next = m.trace.kernels()[gap.next.row];
    before[std::string(m.trace.name(next.name))] += gap.idle.length();
    longest.push_back({-gap.idle.length(), &gap});
  }
  std::ranges::stable_sort(longest, {},
                           [](const auto& one) { return one.first; });
  Finding finding;
  finding.status = FindingStatus::kWarning;
  finding.confidence = Confidence::kHint;
  finding.evidence =
      "The GPU is idle for " + Milliseconds(ns * 1e-6) + " of the " +
      Milliseconds(m.stats.mean_ms) + " step (" + Percent(ns / m.step_ns()) +
      ") between kernels of CUDA graphs. The trace does not show what a kernel "
      "of a graph waits for: a node that was not recorded, a branch of the "
      "graph on another stream, or another rank. So no gain can be given.";
  for (size_t i = 0; i < std::min<size_t>(3, longest.size()); ++i) {
    const Gap& gap = *longest[i].second;
    const size_t step =
        WindowAt(m.steps, &StepWindow::tiled, gap.idle.begin_ns);
    finding.examples.push_back(
        {m.steps.windows[step].number, gap.idle.begin_ns, gap.idle.end_ns,
         "before " +
             std::string(m.trace.name(m.trace.kernels()[gap.next.row].name))});
  }
  if (!before.empty()) {
    const auto most = std::ranges::max_element(
        before, {}, [](const auto& entry) { return entry.second; });
    finding.where = "before " + most->first + " (" +
                    Milliseconds(most->second * 1e-6 / m.steps.steady.size()) +
                    ")";
  }
  finding.fix_cpp =
      "record once without capturing (run the step eagerly): the report then "
      "shows what these kernels wait for";
  finding.fix_python =
      "record once without CUDA graphs (torch.compile without "
      "mode=\"reduce-overhead\"; enforce_eager=True in serving engines): the "
      "report then shows what these kernels wait for";
  finding.wrong_if = "the gaps hold nodes that the recorder left out";
  return Fire(Found{.finding = std::move(finding), .regardless = true});
}

// --- graph-recapture

// Captures of graphs, from the start of capturing until the graph is ready.
struct Captures {
  std::vector<Span> spans = {};
  std::set<size_t> steps = {};  // indices of windows
};

bool BeginsCapture(std::string_view call) {
  return Contains(call, "BeginCapture");
}
bool InstantiatesGraph(std::string_view call) {
  return Contains(call, "GraphInstantiate");
}

Captures FindCaptures(const AnalysisContext& m) {
  Captures found;
  ByName begins(m.trace, &BeginsCapture);
  ByName instantiates(m.trace, &InstantiatesGraph);
  std::map<RowId, int64_t> began_ns;  // by thread
  for (const RuntimeCall& call : m.trace.runtime_calls()) {
    if (begins(call.name)) began_ns[call.thread] = call.begin_ns;
    if (!instantiates(call.name)) continue;
    const size_t step = CountedStepAt(m.steps, call.begin_ns);
    if (step == m.steps.windows.size()) continue;
    const auto began = began_ns.find(call.thread);
    const int64_t from_ns =
        began == began_ns.end() ||
                began->second < m.steps.windows[step].host.begin_ns
            ? call.begin_ns
            : began->second;
    found.spans.push_back({from_ns, call.end_ns});
    found.steps.insert(step);
  }
  return found;
}

Verdict CheckRecapture(const AnalysisContext& m) {
  const Captures captures = FindCaptures(m);
  // A capture in the first step alone may be the usual one.
  if (captures.steps.size() < (captures.steps.contains(0) ? 3U : 2U)) {
    return Clean();
  }
  const auto steps = static_cast<double>(m.steps.windows.size());
  const double capturing_ns =
      static_cast<double>(Length(Merge(captures.spans))) / steps;
  // Before a capture, torch runs the code for new sizes without a graph, and
  // waits for the device.
  const double bound_ns =
      std::max(capturing_ns, LongerBy(m.steps, captures.steps));
  // Slow steps are not steady, so the mean of all steps is the baseline.
  double all_ns = 0;
  for (const StepWindow& step : m.steps.windows) {
    all_ns += static_cast<double>(step.tiled.length()) / steps;
  }
  if (bound_ns < kRecaptureShare * all_ns) return Clean();
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      "CUDA graphs are captured again, " +
      Count(static_cast<int64_t>(captures.spans.size()), "time") + " in " +
      std::to_string(captures.steps.size()) + " of " +
      Count(static_cast<int64_t>(m.steps.windows.size()), "step") +
      ", as for each new size of the inputs. Capturing alone takes " +
      Milliseconds(capturing_ns * 1e-6) + " per step on the host.";
  for (size_t i = 0; i < std::min(kShown, captures.spans.size()); ++i) {
    finding.examples.push_back({-1, captures.spans[i].begin_ns,
                                captures.spans[i].end_ns, "a capture"});
  }
  finding.assumption = "at best: every step only launches graphs that exist";
  finding.fix_cpp =
      "pad inputs to a few sizes, and capture one graph for each before the "
      "loop";
  finding.fix_python =
      "pad inputs to a few sizes (lengths in multiples of 64, drop_last=True); "
      "for many sizes, torch.compile(dynamic=True) without graphs, or "
      "torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True";
  finding.wrong_if =
      "the recorded steps are the first ones, and no new sizes follow";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = bound_ns,
                    .baseline_ms = all_ns * 1e-6,
                    .beyond_noise = true});
}

constexpr Rule kRules[] = {
    {.id = "graph-recapture",
     .question = "Are CUDA graphs captured again in later steps?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kRuntimeCall},
     .causes = {Cause::kDispatch, Cause::kSync, Cause::kAllocator},
     .check = &CheckRecapture,
     .reference = "PyTorch documentation, torch.compiler: CUDAGraph Trees, "
                  "input shape changes",
     .detect = "two or more steps after the first instantiate CUDA graphs, and "
               "these steps, or the captures alone, cost 1 % of the step",
     .avoid = "only one step does, or only the first and warm-up steps",
     .fix_cpp = "pad inputs to a few sizes",
     .fix_python = "pad inputs to a few sizes, or compile without graphs"},
    {.id = "cuda-graph-obstacles",
     .question = "What keeps a step that is slow to launch from becoming a "
                 "CUDA graph?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel, Kind::kRuntimeCall},
     .causes = {},
     .check = &CheckObstacles,
     .reference = "PyTorch documentation, CUDA semantics: constraints of CUDA "
                  "graphs",
     .detect = "the GPU is idle for 10 % of the step while the host launches, "
               "and between the launches the steps wait for the GPU, copy from "
               "pageable memory, call the driver's allocator, or launch "
               "different kernels from step to step",
     .avoid = "these happen before the first or after the last tenth of a "
              "step's launches, where the graph need not reach; or most "
              "kernels come from CUDA graphs already",
     .fix_cpp = "remove each of the named obstacles, then capture",
     .fix_python = "remove each of the named obstacles, then capture"},
    {.id = "graph-idle",
     .question = "Is the GPU idle between the kernels of CUDA graphs?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel},
     .causes = {Cause::kGraphOpaque},
     .check = &CheckGraphIdle,
     .reference = "CUDA C++ Programming Guide: CUDA graphs",
     .detect = "gaps of more than 10 us before kernels of CUDA graphs take 5 "
               "% of the step or more. No gain is given, because the trace "
               "does not show what a node of a graph waits for",
     .avoid = "the gaps precede work that was launched on its own "
              "(dependency-stall), or the graph itself was launched late",
     .fix_cpp = "record once without capturing to see the reason",
     .fix_python = "record once without CUDA graphs to see the reason"}};

}  // namespace
}  // namespace cuda_graphs_rules

extern const std::span<const Rule> kCudaGraphs = cuda_graphs_rules::kRules;

}  // namespace stepscope
