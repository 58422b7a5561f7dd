#include "evidence/kernel_evidence.h"

#include <stepscope/compiled_kernel.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "context/noise.h"
#include "ops/by_name.h"
#include "ops/captured_place.h"
#include "ops/intervals.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// Share of the compute time. The rate of rarer products may be an accident.
constexpr double kShareToTrust = 0.01;
constexpr double kHostBound = 0.15;  // share of the step in which the GPU waits

// What kernels are part of, in words.
class Parts {
 public:
  explicit Parts(const Trace& trace)
      : trace_(trace), fused_ops_(trace, &FusedOpsInWords) {}

  // For a kernel of a CUDA graph, the captured operator; for a compiled one,
  // the operators fused into it.
  std::string Of(const KernelUse& use) {
    const Kernel& kernel = trace_.kernels()[use.kernel];
    const std::span<const NameId> captured = CapturedOps(trace_, kernel);
    if (!captured.empty()) return std::string(trace_.name(captured.front()));
    const std::string& fused = fused_ops_(kernel.name);
    if (!fused.empty()) return fused;
    if (use.op != kNone) return OpOf(use.op);
    return std::string(trace_.name(kernel.name));
  }

 private:
  // Calls of an op with equal arguments share the text.
  std::string OpOf(RowId row) {
    const Op& op = trace_.ops()[row];
    if (op.inputs == kNone) return OpWithShapes(trace_, row);
    std::string& text = ops_[{op.name, op.inputs}];
    if (text.empty()) text = OpWithShapes(trace_, row);
    return text;
  }

  const Trace& trace_;
  ByName<std::string> fused_ops_;
  std::map<std::pair<NameId, RowId>, std::string> ops_;
};

}  // namespace

namespace {

// Averages over the samples that overlap `spans`, which are disjoint and
// sorted, for at least the share `least` of their length.
MeasuredTensorCores Within(const AnalysisContext& m,
                           const std::vector<Span>& spans, double least) {
  const int32_t device =
      m.kernels.uses.empty()
          ? 0
          : m.trace.kernels()[m.kernels.uses[0].kernel].device;
  MeasuredTensorCores measured;
  double active_ns = 0;
  for (const DeviceSample& sample : m.trace.device_samples()) {
    // `!(x >= 0)` also leaves out NaN, which means that the counter was not
    // read.
    if (sample.device != device || sample.counted_ns <= 0 ||
        !(sample.tensor_active_frac >= 0)) {
      continue;
    }
    const auto length = static_cast<double>(sample.counted_ns);
    const auto inside = static_cast<double>(
        LengthIn(spans, {sample.time_ns - sample.counted_ns, sample.time_ns}));
    if (inside <= 0 || inside < least * length) continue;
    measured.ns += length;
    active_ns += length * static_cast<double>(sample.tensor_active_frac);
  }
  if (measured.ns > 0) measured.active_frac = active_ns / measured.ns;
  return measured;
}

}  // namespace

MeasuredTensorCores TensorCoresDuring(const AnalysisContext& m,
                                      const KernelFilter& wanted) {
  // A sample lasts longer than most kernels. It says something about the wanted
  // kernels only if they fill it.
  constexpr double kFilled = 0.95;
  std::vector<Span> spans;
  for (const KernelUse& use : m.kernels.uses) {
    if (!wanted(use)) continue;
    const Kernel& kernel = m.trace.kernels()[use.kernel];
    spans.push_back({kernel.begin_ns, kernel.end_ns});
  }
  return Within(m, Merge(std::move(spans)), kFilled);
}

MeasuredTensorCores TensorCoresInSteps(const AnalysisContext& m) {
  constexpr double kMostly = 0.5;
  std::vector<Span> spans;
  for (const size_t step : m.steps.steady) {
    spans.push_back(m.steps.windows[step].tiled);
  }
  return Within(m, Merge(std::move(spans)), kMostly);
}

double NominalFlops(const DevicePeaks& peaks, Precision precision) {
  switch (precision) {
    case Precision::kFp16:
    case Precision::kBf16:
      return peaks.fp16;
    case Precision::kTf32:
      return peaks.tf32;
    case Precision::kFp32:
      return peaks.fp32;
    case Precision::kFp64:
      return peaks.fp32 * peaks.fp64_share;
    default:
      return 0;
  }
}

// Returns one example per op and sizes, because a model repeats its layers and
// three equal examples would show nothing new.
std::vector<Example> LongestKernels(const AnalysisContext& m,
                                    const KernelFilter& wanted) {
  struct Sum {
    double ns = 0;
    int64_t count = 0;
    const KernelUse* longest = nullptr;
  };
  std::map<std::string, Sum> sums;
  Parts parts(m.trace);
  for (const KernelUse& use : m.kernels.uses) {
    if (!wanted(use)) continue;
    Sum& sum = sums[parts.Of(use)];
    sum.ns += use.ns;
    ++sum.count;
    if (sum.longest == nullptr || use.ns > sum.longest->ns) sum.longest = &use;
  }
  std::vector<std::pair<std::string, Sum>> order(sums.begin(), sums.end());
  std::ranges::stable_sort(order, std::greater(),
                           [](const auto& entry) { return entry.second.ns; });
  std::vector<Example> examples;
  for (const auto& [what, sum] : order) {
    if (examples.size() == 3) break;
    const Kernel& kernel = m.trace.kernels()[sum.longest->kernel];
    std::string name(m.trace.name(kernel.name));
    if (name.size() > 60) name = name.substr(0, 57) + "...";
    std::string text = what + ": " + Count(sum.count, "kernel") + ", ";
    text += Milliseconds(sum.ns * 1e-6 / m.kernels.steps);
    text += " per step (" + name + ")";
    examples.push_back({m.steps.windows[sum.longest->step].number,
                        kernel.begin_ns, kernel.end_ns, std::move(text)});
  }
  return examples;
}

// Other products can be expected to reach the best rate that this run shows,
// because they have the same device, library and clocks.
std::vector<double> DeviceNsByOp(const AnalysisContext& context) {
  std::vector<double> by_op(context.trace.ops().size());
  for (const KernelUse& use : context.kernels.uses) {
    const RowId op = context.trace.kernels()[use.kernel].op;
    if (op != kNone) by_op[op] += use.ns;
  }
  return by_op;
}

double DeviceNsInside(const AnalysisContext& context,
                      const std::vector<double>& by_op, RowId op) {
  double ns = 0;
  for (RowId row : context.tree.inside(op)) ns += by_op[row];
  return ns;
}

Roofline::Roofline(const KernelUses& kernels) : kernels_(kernels) {
  struct Sum {
    double flops = 0, ns = 0;
  };
  // The kernels of an op share its FLOPs, so their times are added up. Ops with
  // equal FLOPs are averaged, so that no single lucky op sets the rate.
  std::map<RowId, std::pair<bool, Sum>> by_op;
  for (const KernelUse& use : kernels.uses) {
    const bool tf32 = use.precision == Precision::kTf32;
    if (!use.multiplies || use.narrow || use.flops < 0 || use.op == kNone ||
        use.tensor_cores != TensorCores::kYes ||
        !(tf32 || Is16Bit(use.precision))) {
      continue;
    }
    auto& [is_tf32, sum] = by_op[use.op];
    is_tf32 = tf32;
    sum.flops += use.flops;
    sum.ns += use.ns;
  }
  std::map<std::pair<bool, double>, Sum> by_work;
  for (const auto& [op, entry] : by_op) {
    Sum& all = by_work[{entry.first, std::round(entry.second.flops)}];
    all.flops += entry.second.flops;
    all.ns += entry.second.ns;
  }
  for (const auto& [work, sum] : by_work) {
    if (sum.ns < kShareToTrust * kernels.compute_ns * kernels.steps) continue;
    double& best = work.first ? seen_tf32_ : seen_16_bit_;
    best = std::max(best, sum.flops / sum.ns);
  }
}

double Roofline::Flops(Precision precision) const {
  if (Is16Bit(precision) && seen_16_bit_ > 0) return seen_16_bit_;
  if (precision == Precision::kTf32 && seen_tf32_ > 0) return seen_tf32_;
  return kernels_.peaks.exact
             ? kGoodCompute * NominalFlops(kernels_.peaks, precision)
             : 0;
}

// Roofline model: a kernel takes at least as long as its arithmetic and as its
// memory traffic, whichever is longer.
double Roofline::Ns(Precision precision, double flops, double bytes) const {
  const double rate = Flops(precision);
  double ns = rate > 0 && flops > 0 ? flops / rate : 0;
  if (bytes > 0 && kernels_.peaks.exact && kernels_.peaks.bytes_per_ns > 0) {
    ns = std::max(ns, bytes / (kGoodBandwidth * kernels_.peaks.bytes_per_ns));
  }
  return ns;
}

std::string PeaksInWords(const DevicePeaks& peaks) {
  if (!peaks.exact) return "";
  return "peaks of " + peaks.device + ": " + Number(peaks.fp16 * 1e-3) +
         " TFLOP/s in 16 bits, " + Number(peaks.fp32 * 1e-3) + " in float32, " +
         Bandwidth(peaks.bytes_per_ns);
}

Verdict FireForKernels(const AnalysisContext& m, Finding finding, Edit edit,
                       double saved_ns) {
  Found found{.finding = std::move(finding),
              .alternatives = {{std::move(edit)}},
              .bound_ns = saved_ns};
  // If little kernel time is saved, a small gain needs no explanation.
  if (saved_ns * 1e-6 >= MinReportableGainMs(m)) {
    const double waiting = m.MeanNs(Cause::kDispatch) +
                           m.MeanNs(Cause::kHostCode) + m.MeanNs(Cause::kData);
    found.if_small.evidence =
        " " + Milliseconds(saved_ns * 1e-6) +
        " less kernel time shortens the step by only {gain}" +
        (waiting > kHostBound * m.step_ns()
             ? ", because the GPU waits for the host: fix that first."
             : ", because something else limits the step.");
  }
  return Fire(std::move(found));
}

// For a change that removes kernels: neither the device nor the launching
// thread spends time on them any more.
void DropLaunches(const AnalysisContext& m, const KernelFilter& wanted,
                  Edit& edit) {
  for (const KernelUse& use : m.kernels.uses) {
    if (!wanted(use)) continue;
    edit.scales.push_back(Scaled(use, 0));
    const RowId row = m.trace.kernels()[use.kernel].call;
    if (row == kNone) continue;
    const RuntimeCall& call = m.trace.runtime_calls()[row];
    edit.cuts.push_back({.thread = call.thread,
                         .span = {call.begin_ns, call.end_ns},
                         .keep_ns = 0});
  }
}

}  // namespace stepscope
