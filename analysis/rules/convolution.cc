// Does cuDNN search for the fastest algorithm, and only once per size?
// Sources: PyTorch Performance Tuning Guide, "Enable cuDNN auto-tuner"; "17
// tips", number 6 (27 % on one convolution); "PyTorch Performance Features and
// How They Interact" (cuDNN searches again for every new size).
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "device/convolution_calls.h"
#include "evidence/kernel_evidence.h"
#include "ops/by_name.h"
#include "ops/contains.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace convolution_rules {
namespace {

constexpr double kLeastSearching = 0.01;  // of the step, as for other gains

constexpr double kLeastFallback = 0.03;  // as XProf calls moderate
constexpr double kShare = 0.20;          // of the compute time
constexpr double kMostGain = 0.27;       // measured in "17 tips", number 6
constexpr double kStepsPerSearch = 10;

bool IsConvolution(const KernelUse& use) {
  return use.multiplies && use.serves == KernelClass::kConvolution;
}

// The sizes that a step convolves: the shapes of its ops or, if shapes were not
// recorded, the grids of their kernels.
using Signature = std::multiset<std::pair<RowId, int64_t>>;
std::map<size_t, Signature> SignaturesByStep(const AnalysisContext& m) {
  std::map<size_t, Signature> signatures;
  for (const KernelUse& use : m.kernels.uses) {
    if (!IsConvolution(use)) continue;
    const Kernel& kernel = m.trace.kernels()[use.kernel];
    const RowId inputs = m.trace.ops()[use.op].inputs;
    const int64_t grid =
        static_cast<int64_t>(kernel.grid[0]) * kernel.grid[1] * kernel.grid[2];
    signatures[use.step].emplace(inputs, inputs == kNone ? grid : 0);
  }
  return signatures;
}

Verdict CheckBenchmarkOff(const AnalysisContext& m) {
  const Settings& settings = m.trace.settings().back();
  if (settings.cudnn_benchmark < 0) {
    return Skip("cuDNN's settings were not recorded");
  }
  // Deterministic mode rules the search out.
  if (settings.cudnn_benchmark == 1 || settings.deterministic == 1) {
    return Clean();
  }
  const KernelUses& kernels = m.kernels;
  const double ns = kernels.NsPerStep(IsConvolution);
  if (ns <= 0 || ns < kShare * kernels.compute_ns) return Clean();
  const double compiled =
      kernels.NsPerStep([](const KernelUse& use) { return use.compiled; });
  const double pointwise = kernels.NsPerStep([](const KernelUse& use) {
    return use.kind == KernelClass::kElementwise && !use.in_optimizer;
  });
  if (2 * compiled > pointwise && compiled > 0) return Clean();
  // With varying sizes the search costs more than it gains, because cuDNN
  // repeats it for each new size.
  const std::map<size_t, Signature> signatures = SignaturesByStep(m);
  for (const auto& [step, signature] : signatures) {
    if (signature != signatures.begin()->second) return Clean();
  }

  Finding finding;
  finding.confidence = Confidence::kHint;
  finding.examples = LongestKernels(m, IsConvolution);
  finding.evidence =
      "Convolutions take " + Milliseconds(ns * 1e-6) + " per step (" +
      Percent(ns / kernels.compute_ns) +
      " of the compute time). Their sizes are the same in every step, and "
      "cuDNN's search for the fastest algorithm is off. Turn it on and "
      "measure.";
  finding.assumption =
      "the search saves 0 to 27 % of the convolutions' time; the gain shown "
      "is for the middle of this range";
  finding.fix_cpp = "at::globalContext().setBenchmarkCuDNN(true)";
  finding.fix_python = "torch.backends.cudnn.benchmark = True";
  finding.wrong_if =
      "sizes change from batch to batch, because cuDNN searches again for each "
      "size";
  const auto faster = [&](double by) {
    Edit edit;
    for (const KernelUse& use : kernels.uses) {
      if (IsConvolution(use)) edit.scales.push_back(Scaled(use, 1 - by));
    }
    return edit;
  };
  return Fire(Found{.finding = std::move(finding),
                    .alternatives = {{faster(kMostGain / 2)}},
                    .bound_ns = kMostGain * ns,
                    .best_case = faster(kMostGain)});
}

Verdict CheckConvRetuning(const AnalysisContext& m) {
  const ConvolutionCalls calls(m.trace);
  if (calls.all().empty()) return Clean();
  std::set<std::pair<NameId, RowId>> seen;
  std::vector<ConvolutionCall> searches;
  std::set<size_t> in;
  bool shapes = false;
  for (const ConvolutionCall& call : calls.all()) {
    const Op& op = m.trace.ops()[call.op];
    // A size that occurred before needs no search. Without shapes, every call
    // may have a new size.
    const bool fresh =
        seen.emplace(op.name, op.inputs).second || op.inputs == kNone;
    shapes |= op.inputs != kNone;
    const size_t step = CountedStepAt(m.steps, op.begin_ns);
    if (fresh && call.searches && step < m.steps.windows.size()) {
      searches.push_back(call);
      in.insert(step);
    }
  }
  const double windows = static_cast<double>(m.steps.windows.size());
  if (searches.empty() || kStepsPerSearch * searches.size() < windows) {
    return Clean();
  }
  Finding finding;
  // A step runs the same convolutions as the one before, so searches in several
  // steps are for new sizes.
  finding.confidence =
      shapes || in.size() > 1 ? Confidence::kStrong : Confidence::kHint;
  // A search costs the time that its call takes beyond the chosen kernel.
  double excess = 0;
  for (const ConvolutionCall& call : searches) {
    const Op& op = m.trace.ops()[call.op];
    const int64_t ns = op.end_ns - op.begin_ns - call.fastest_ns;
    excess += std::max(0.0, static_cast<double>(ns)) / windows;
    if (finding.examples.size() < 3) {
      finding.examples.push_back(
          {-1, op.begin_ns, op.end_ns, OpWithShapes(m.trace, call.op)});
    }
  }
  // The device also waits for what a search allocates and frees. The searches
  // themselves make the steps vary.
  excess = std::max(excess, LongerBy(m.steps, in));
  if (excess < kLeastSearching * m.step_ns()) return Clean();
  finding.evidence =
      "cuDNN searches for the fastest algorithm repeatedly: " +
      Count(static_cast<int64_t>(searches.size()), "search", "searches") +
      " in " + Count(static_cast<int64_t>(windows), "step") +
      (searches.size() == 1 ? " takes " : " take ") +
      Milliseconds(excess * 1e-6) + " per step" +
      (shapes ? ", each for a size that did not occur before." : ".");
  finding.where = finding.examples.front().what;
  finding.fix_cpp =
      "pad inputs to a few sizes, drop the last partial batch, or turn the "
      "search off: at::globalContext().setBenchmarkCuDNN(false)";
  finding.fix_python =
      "pad inputs to a few sizes, drop the last partial batch with "
      "DataLoader(drop_last=True), set torch.backends.cudnn.benchmark_limit, "
      "or turn the search off with torch.backends.cudnn.benchmark = False";
  finding.wrong_if =
      "the recorded steps already contain every size that the run uses";
  // A single search may not recur, so it is reported without a gain.
  if (searches.size() > 1) {
    finding.assumption = "at best, cuDNN does not search at all";
    // Steps with searches are slow, so the mean step may leave them out.
    const bool over_steps = std::ranges::any_of(in, [&](size_t step) {
      return !std::ranges::binary_search(m.steps.steady, step);
    });
    return Fire(Found{
        .finding = std::move(finding),
        .bound_ns = excess,
        .baseline_ms = over_steps ? m.gain_step_ms(m.stats.all_mean_ms) : 0,
        .beyond_noise = true});
  }
  finding.assumption =
      "a single search, for example for the last batch of an epoch, costs "
      "little";
  return Fire(std::move(finding));
}

// --- fallback-convolution

// Kernels of convolutions that take many times as long as those of the vendor's
// library, and how to do without them.
struct Fallback {
  std::string_view kernel;  // part of its name
  std::string_view what;
  const char* fix;
};
constexpr Fallback kFallbacks[] = {
    {"naive_conv_", "MIOpen has no solver for these sizes but a naive one",
     "let MIOpen search: MIOPEN_FIND_MODE=NORMAL, or "
     "torch.backends.cudnn.benchmark = True; another memory format or type "
     "may have a solver, and a newer ROCm; dilated and grouped convolutions "
     "can be written with other layers"},
    {"conv_depthwise", "PyTorch's own depthwise kernels",
     "channels-last and 16 bits, for which cuDNN has depthwise kernels: "
     "model.to(memory_format=torch.channels_last), and the input as well"},
    {"im2col", "unfolding the input for a matrix product",
     "let cuDNN compute it: torch.backends.cudnn.enabled = True, float32 or 16 "
     "bits"},
    {"vol2col", "unfolding the input for a matrix product",
     "let cuDNN compute it: torch.backends.cudnn.enabled = True, float32 or 16 "
     "bits"}};

const Fallback* FallbackOf(std::string_view kernel) {
  const auto found = std::ranges::find_if(kFallbacks, [&](const Fallback& one) {
    return Contains(kernel, one.kernel);
  });
  return found == std::end(kFallbacks) ? nullptr : found;
}

Verdict CheckFallback(const AnalysisContext& m) {
  std::map<const Fallback*, double> ns;  // per step
  Edit at_best;
  ByName by_name(m.trace, &FallbackOf);
  const auto fallback_of = [&](const KernelUse& use) -> const Fallback* {
    const Fallback* fallback = by_name(m.trace.kernels()[use.kernel].name);
    // A program may unfold an input itself.
    return fallback != nullptr && Contains(fallback->kernel, "2col") &&
                   use.serves != KernelClass::kConvolution
               ? nullptr
               : fallback;
  };
  for (const KernelUse& use : m.kernels.uses) {
    const Fallback* fallback = fallback_of(use);
    if (fallback == nullptr) continue;
    ns[fallback] += use.ns / m.kernels.steps;
    at_best.scales.push_back(Scaled(use, 0));
  }
  if (ns.empty()) return Clean();
  double all_ns = 0;
  for (const auto& [fallback, sum] : ns) all_ns += sum;
  if (all_ns < kLeastFallback * m.step_ns()) return Clean();
  const Fallback* most = std::ranges::max_element(ns, {}, [](const auto& one) {
                           return one.second;
                         })->first;
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.examples = LongestKernels(
      m, [&](const KernelUse& use) { return fallback_of(use) != nullptr; });
  finding.evidence = "Convolutions run in slow kernels (" +
                     std::string(most->kernel) +
                     "...: " + std::string(most->what) + ") for " +
                     Milliseconds(all_ns * 1e-6) + " of the " +
                     Milliseconds(m.step_ns() * 1e-6) + " step.";
  finding.assumption = "at best: other kernels take no time";
  finding.fix_python = finding.fix_cpp = most->fix;
  finding.wrong_if = "no faster kernel exists for these sizes and this device";
  return FireBound(std::move(finding), all_ns, std::move(at_best));
}

constexpr Rule kRules[] = {
    {.id = "fallback-convolution",
     .question = "Do convolutions run in kernels that libraries fall back to?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel},
     .causes = {Cause::kCompute},
     .check = &CheckFallback,
     .reference =
         "MIOpen documentation, find modes; PyTorch Performance Tuning "
         "Guide: channels_last memory format",
     .detect = "kernels of MIOpen's naive solver, of PyTorch's own depthwise "
               "convolution, or those that unfold an input take 3 % of the "
               "step",
     .avoid = "cuDNN's or MIOpen's usual solvers run",
     .fix_cpp = "another memory format or type; let MIOpen search",
     .fix_python = "channels_last; MIOPEN_FIND_MODE=NORMAL"},
    {.id = "cudnn-benchmark-off",
     .question = "Is cuDNN's search for the fastest algorithm off although "
                 "the sizes are constant?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel, Kind::kSettings},
     .causes = {Cause::kCompute},
     .check = &CheckBenchmarkOff,
     .reference = "PyTorch Performance Tuning Guide: Enable cuDNN auto-tuner",
     .detect = "cudnn.benchmark is off, convolutions take 20 % of the compute "
               "time or more, and their sizes are the same in all steps",
     .avoid = "deterministic mode is on, the model is compiled, sizes vary, or "
              "the trace does not contain the setting",
     .fix_cpp = "at::globalContext().setBenchmarkCuDNN(true)",
     .fix_python = "torch.backends.cudnn.benchmark = True",
     .change = "cudnn.benchmark on"},
    {.id = "conv-retuning",
     .question = "Does cuDNN search for the fastest algorithm repeatedly?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel, Kind::kRuntimeCall},
     .causes = {Cause::kDispatch, Cause::kCompute},
     .check = &CheckConvRetuning,
     .reference = "PyTorch Performance Features and How They Interact: cuDNN "
                  "benchmarking with varying sizes",
     .detect = "at least once in ten steps, a convolution of a new size "
               "launches more than four different kernels and allocates memory "
               "or records events, or more than four kernels whose times it "
               "reads",
     .avoid = "the search happens in warm-up steps; a single search is "
              "reported as a note without a gain",
     .fix_cpp = "pad inputs to a few sizes",
     .fix_python = "pad inputs to a few sizes, set drop_last=True",
     .change = "no tuning of convolutions in the steps"}};

}  // namespace
}  // namespace convolution_rules

extern const std::span<const Rule> kConvolution = convolution_rules::kRules;

}  // namespace stepscope
