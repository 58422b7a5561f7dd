// Does the optimizer update parameters one by one?
// Source: "17 tips", number 5 (fused optimizers, about 5 %). With fewer than 50
// parameters there is little to fuse.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "context/rule.h"
#include "evidence/kernel_evidence.h"
#include "evidence/optimizer_work.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr double kParameters = 50;
constexpr double kPerLaunch = 300;  // tensors that one foreach launch takes
constexpr double kLaunchNs = 10'000;
constexpr double kRangeNs = 50'000;  // what a fused step costs the host anyway

// A few launches in place of many; the kernels without what each of them costs
// at least.
Edit Grouped(const AnalysisContext& m, const OptimizerWork& work) {
  Edit edit;
  const double launches = std::ceil(work.parameters / kPerLaunch) *
                          std::ceil(work.updates / work.parameters);
  for (const Span& span : work.spans) {
    edit.cuts.push_back({.thread = m.steps.thread,
                         .span = span,
                         .keep_ns = kRangeNs + launches * kLaunchNs});
  }
  std::vector<const KernelUse*> kernels;
  double shortest = 1e300;
  for (const KernelUse& use : m.kernels.uses) {
    const RowId call = m.trace.kernels()[use.kernel].call;
    if (call == kNone ||
        !LiesIn(work.spans, m.trace.runtime_calls()[call].begin_ns)) {
      continue;
    }
    kernels.push_back(&use);
    shortest = std::min(shortest, use.ns);
  }
  const double left = launches / std::max(work.updates, 1.0);
  for (const KernelUse* use : kernels) {
    const double moving = std::max(0.0, use->ns - shortest);
    edit.scales.push_back(Scaled(
        *use,
        std::min(1.0, (moving + left * shortest) / std::max(use->ns, 1.0))));
  }
  return edit;
}

Verdict CheckUnfusedOptimizer(const AnalysisContext& m) {
  const OptimizerWork work = MeasureOptimizer(m);
  if (work.spans.empty()) return Clean();  // nothing is trained
  if (work.grouped || work.parameters < kParameters ||
      work.updates < work.parameters) {
    return Clean();
  }
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
      ", one parameter after the other: " + Milliseconds(work.host_ns * 1e-6) +
      " per step on the host" +
      (work.inferred ? ", in the updates that follow the last gradient." : ".");
  finding.assumption =
      m.has_gpu ? "a foreach or fused step launches one kernel for 300 tensors"
      : work.fused_traffic > 0
          ? "a fused step goes over parameters, gradients and state once, as "
            "fast as the recorded ops did"
          : "at best: no framework code between the updates";
  finding.fix_cpp =
      "torch::optim has neither: call at::_fused_adamw_ (or at::_foreach_add_ "
      "and friends) on the lists of parameters in a step of your own";
  finding.fix_python = "torch.optim.AdamW(..., fused=True), or foreach=True";
  finding.wrong_if = "the parameters are sparse, or of mixed types";
  if (!m.has_gpu) {
    // Foreach ops on a CPU go through the list one by one.
    finding.fix_cpp =
        "torch::optim has none: call at::_fused_sgd_ or at::_fused_adamw_ on "
        "the lists of parameters in a step of your own";
    finding.fix_python = "torch.optim.SGD(..., fused=True)";
    Found found{.finding = std::move(finding),
                .bound_ns = work.overhead_ns,
                .needs_replay = true};
    if (work.fused_traffic > 0 && !work.inferred) {
      found.alternatives = {{Edit{.fused_update = work.fused_traffic}}};
    }
    return Fire(std::move(found));
  }
  return Fire(std::move(finding), Grouped(m, work), work.host_ns);
}

constexpr Rule kRules[] = {
    {.id = "unfused-optimizer",
     .question = "Does the optimizer update parameters one by one?",
     .needs = {Kind::kOp},
     .check = &CheckUnfusedOptimizer,
     .reference = "17 tips for faster training, 5: fused optimizers",
     .detect = "At least as many launches (ops on a CPU) in the optimizer's "
               "step as parameters, of which there are 50 or more",
     .avoid = "foreach and fused optimizers; models of few parameters",
     .fix_cpp = "at::_fused_adamw_ or at::_foreach_* on lists of parameters",
     .fix_python = "fused=True or foreach=True"}};

}  // namespace

extern const std::span<const Rule> kOptimizer = kRules;

}  // namespace stepscope
