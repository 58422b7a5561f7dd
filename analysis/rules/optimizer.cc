// Does the optimizer update parameters one by one?
// Source: "17 tips", number 5 (fused optimizers, about 5 %). With fewer than 50
// parameters there is little to fuse.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "context/rule.h"
#include "evidence/kernel_evidence.h"
#include "evidence/optimizer_work.h"
#include "ops/intervals.h"
#include "words/quantities.h"

namespace stepscope {
namespace optimizer_rules {
namespace {

constexpr double kParameters = 50;
// How many parameters one kernel updates that reads four tensors of each (the
// parameter, its gradient and two moments): PyTorch's MultiTensorApply.cuh. The
// arguments of a kernel limit it, and since CUDA 13 they may be 32 KB.
constexpr double kPerLaunch = 36, kPerLaunchOfCuda13 = 252;
constexpr double kLaunchNs = 10'000;
// Tensors of a parameter's size that a fused Adam reads or writes: the
// parameter, its gradient and two moments, of which three are written back. A
// single elementwise op reads two tensors and writes one.
constexpr double kFusedTensors = 7, kOpTensors = 3;
// Python collects the tensors of each parameter before it launches: 1.1 us per
// parameter in SGD and 1.5 us in Adam and AdamW (torch 2.11, fused=True with
// empty kernels), besides the lists that the call itself reads.
constexpr double kPerParameterNs = 2'000;
// Host time of a fused step in addition to its launches.
constexpr double kRangeNs = 50'000;

double ParametersPerLaunch(const Trace& trace) {
  return std::atoi(trace.run().cuda_version.c_str()) >= 13 ? kPerLaunchOfCuda13
                                                           : kPerLaunch;
}

// Returns the kernels that the optimizer's step launches.
std::vector<const KernelUse*> KernelsOf(const AnalysisContext& m,
                                        const OptimizerWork& work) {
  std::vector<const KernelUse*> kernels;
  for (const KernelUse& use : m.kernels.uses) {
    const RowId call = m.trace.kernels()[use.kernel].call;
    if (call != kNone &&
        Covers(work.spans, m.trace.runtime_calls()[call].begin_ns)) {
      kernels.push_back(&use);
    }
  }
  return kernels;
}

// Returns the optimizer's step with a few grouped launches. The shortest kernel
// shows what any launch costs the device. Only time beyond that moves data, and
// a grouped update moves it in fewer passes.
Edit GroupedUpdate(const AnalysisContext& m, const OptimizerWork& work) {
  Edit edit;
  // Each op of an update becomes a few launches, for all parameters.
  const double launches =
      std::ceil(work.parameters / ParametersPerLaunch(m.trace)) *
      std::max(1.0, std::round(work.updates / work.parameters));
  for (const Span& span : work.spans) {
    edit.cuts.push_back({.thread = m.steps.thread,
                         .span = span,
                         .keep_ns = kRangeNs + launches * kLaunchNs +
                                    work.parameters * kPerParameterNs});
  }
  const std::vector<const KernelUse*> kernels = KernelsOf(m, work);
  double shortest = 1e300;
  for (const KernelUse* use : kernels) shortest = std::min(shortest, use->ns);
  const double left = launches / std::max(work.updates, 1.0);
  // One kernel for the whole update passes over each tensor once.
  const double passes = std::min(
      1.0, kFusedTensors * work.parameters / (kOpTensors * work.updates));
  for (const KernelUse* use : kernels) {
    const double moving = passes * std::max(0.0, use->ns - shortest);
    edit.scales.push_back(Scaled(
        *use,
        std::min(1.0, (moving + left * shortest) / std::max(use->ns, 1.0))));
  }
  return edit;
}

Verdict CheckUnfusedOptimizer(const AnalysisContext& m) {
  const OptimizerWork work = MeasureOptimizer(m);
  if (work.spans.empty()) return Clean();  // nothing is trained
  // If there are fewer updates than parameters, each update already takes
  // several parameters.
  if (work.grouped || work.updates < work.parameters) return Clean();
  // A GPU loses a launch per update; a CPU passes over large parameters again
  // and again, however few there are.
  if (m.has_gpu && work.parameters < kParameters) return Clean();
  Finding finding;
  finding.confidence = Confidence::kStrong;
  for (size_t i = 0; i < std::min<size_t>(3, work.spans.size()); ++i) {
    finding.examples.push_back({-1, work.spans[i].begin_ns,
                                work.spans[i].end_ns, "the optimizer's step"});
  }
  finding.evidence =
      "The optimizer updates " +
      Count(std::llround(work.parameters), "parameter") + " in " +
      (m.has_gpu ? Count(std::llround(work.updates), "launch", "launches")
                 : Count(std::llround(work.updates), "op")) +
      ", one parameter at a time, which takes " +
      Milliseconds(work.host_ns * 1e-6) + " per step on the host" +
      (work.inferred ? " (the updates after the last gradient)." : ".");
  finding.assumption =
      m.has_gpu ? "a foreach or fused step launches one kernel per " +
                      Times(ParametersPerLaunch(m.trace)) + " parameters"
      : work.fused_left > 0
          ? "a fused step passes over parameters, gradients and state once, at "
            "the memory rate of most of the recorded ops; the slower ones "
            "write to newly allocated memory"
          : "at best: no framework code runs between the updates";
  finding.fix_cpp =
      "torch::optim has no fused or foreach optimizer: write a step that "
      "calls " +
      FusedOptimizerInCpp(work) +
      ", or at::_foreach_add_ and similar ops, on the lists of parameters";
  finding.fix_python = FusedOptimizerInPython(work) + "; or foreach=True";
  finding.wrong_if = "the parameters are sparse or have mixed types";
  if (!m.has_gpu) {
    // On a CPU, foreach ops process the list one tensor at a time.
    finding.fix_cpp =
        "torch::optim has no fused optimizer: write a step that calls " +
        FusedOptimizerInCpp(work) + " on the lists of parameters";
    finding.fix_python = FusedOptimizerInPython(work);
    Found found{.finding = std::move(finding),
                .bound_ns = work.overhead_ns,
                .needs_replay = true};
    if (work.fused_left > 0 && !work.inferred) {
      found.alternatives = {{Edit{.fused_update = work.fused_left}}};
    }
    return Fire(std::move(found));
  }
  return Fire(std::move(finding), GroupedUpdate(m, work), work.host_ns);
}

// Returns an edit that shortens the kernels of the optimizer's step to the
// share `left`.
Edit FusedKernels(const AnalysisContext& m, const OptimizerWork& work,
                  double left, double& saved_ns) {
  Edit edit;
  for (const KernelUse* use : KernelsOf(m, work)) {
    edit.scales.push_back(Scaled(*use, left));
    saved_ns += (1 - left) * use->ns / std::max(1.0, m.kernels.steps);
  }
  return edit;
}

Verdict CheckForeachNotFused(const AnalysisContext& m) {
  const OptimizerWork work = MeasureOptimizer(m);
  if (work.fused || work.foreach_ops == 0) return Clean();
  // Plain SGD already passes over its tensors only once.
  if (work.foreach_traffic >= 1) return Clean();
  Finding finding;
  finding.confidence = Confidence::kStrong;
  for (size_t i = 0; i < std::min<size_t>(3, work.spans.size()); ++i) {
    finding.examples.push_back({-1, work.spans[i].begin_ns,
                                work.spans[i].end_ns, "the optimizer's step"});
  }
  const double per_step = static_cast<double>(work.foreach_ops) /
                          static_cast<double>(m.steps.steady.size());
  finding.evidence =
      (work.name.empty() ? "The optimizer" : work.name) +
      " updates its "
      "parameters in " +
      Count(std::llround(per_step), "foreach op") +
      " per step, each of which passes over all of them; the step takes " +
      Milliseconds(work.host_ns * 1e-6) +
      " on the host. A fused update moves " + Percent(work.foreach_traffic) +
      " as many bytes.";
  finding.assumption =
      m.has_gpu
          ? "the ops of the update take time in proportion to the bytes they "
            "move"
          : "a fused step moves its bytes at the rate of most of the recorded "
            "ops; the slower ones write to newly allocated memory";
  finding.fix_cpp = "call " + FusedOptimizerInCpp(work) +
                    " on the lists of parameters, gradients and state";
  finding.fix_python = FusedOptimizerInPython(work);
  finding.wrong_if = "the parameters have mixed types";
  if (m.has_gpu) {
    double saved_ns = 0;
    Edit edit = FusedKernels(m, work, work.foreach_traffic, saved_ns);
    return Fire(std::move(finding), std::move(edit), saved_ns);
  }
  return Fire(std::move(finding), Edit{.fused_update = work.foreach_left},
              (1 - work.foreach_left) * work.host_ns);
}

constexpr Rule kRules[] = {
    {.id = "foreach-not-fused",
     .question = "Does the optimizer pass over all parameters once per op, "
                 "although a fused step needs a single pass?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckForeachNotFused,
     .reference = "17 tips for faster training, 5: fused optimizers",
     .detect = "the optimizer's step calls aten::_foreach_ ops, which read and "
               "write more tensors than a fused update needs (3 per parameter "
               "for SGD, 5 with momentum, 7 with a second moment), and no "
               "aten::_fused_ op",
     .avoid = "the update is plain SGD, which is one pass in any case",
     .fix_cpp = "at::_fused_adamw_ and the like on lists of parameters",
     .fix_python = "fused=True",
     .change = "fused optimizer step"},
    {.id = "unfused-optimizer",
     .question = "Does the optimizer update parameters one by one?",
     .needs = {Kind::kOp},
     .causes = {Cause::kDispatch, Cause::kCompute, Cause::kHostCode},
     .check = &CheckUnfusedOptimizer,
     .reference = "17 tips for faster training, 5: fused optimizers",
     .detect = "the optimizer's step has at least as many launches (on a CPU: "
               "ops) as parameters, of which there are 50 or more on a GPU",
     .avoid =
         "the optimizer is foreach or fused, or a GPU has few parameters to "
         "launch updates for",
     .fix_cpp = "at::_fused_adamw_ or at::_foreach_* on lists of parameters",
     .fix_python = "fused=True or foreach=True",
     .change = "fused optimizer step"}};

}  // namespace
}  // namespace optimizer_rules

extern const std::span<const Rule> kOptimizer = optimizer_rules::kRules;

}  // namespace stepscope
