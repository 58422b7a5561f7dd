// Is work done on gradients that need not be done?
// Sources: PyTorch Performance Tuning Guide, "Set gradients to None"; the
// ResNet-18 case study, step 5 (no measurable gain there).
#include <algorithm>
#include <string>

#include "context/rule.h"
#include "engine/sizing.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

int64_t TimeInSteps(const AnalysisContext& m, const std::vector<RowId>& rows) {
  int64_t ns = 0;
  for (RowId row : rows) {
    const Op& op = m.trace.ops()[row];
    if (InSteadyStep(m.steps, op.begin_ns)) ns += op.end_ns - op.begin_ns;
  }
  return ns;
}

Verdict CheckZeroGrad(const AnalysisContext& m) {
  const ZeroGrad& found = m.parts.zero_grad;
  if (found.zeroing.empty()) return Clean();
  const double steps = static_cast<double>(m.steps.steady.size());
  const double zero = TimeInSteps(m, found.zeroing) / steps;
  const double add = TimeInSteps(m, found.adding) / steps;
  if (zero <= 0) return Clean();

  Finding finding;
  finding.confidence = Confidence::kProven;
  for (size_t i = 0; i < std::min<size_t>(3, found.zeroing.size()); ++i) {
    const Op& op = m.trace.ops()[found.zeroing[i]];
    finding.examples.push_back(
        {-1, op.begin_ns, op.end_ns, std::string(m.trace.name(op.name))});
  }
  const auto per_step = [&](size_t count) {
    return static_cast<int64_t>(count / m.steps.windows.size());
  };
  finding.evidence =
      "Gradients are filled with zeros: " +
      Count(std::max<int64_t>(1, per_step(found.zeroing.size())), "call") +
      " and " + Milliseconds(zero * 1e-6) + " per step";
  if (!found.adding.empty()) {
    finding.evidence +=
        "; backward then adds to the zeros in " +
        Count(std::max<int64_t>(1, per_step(found.adding.size())), "call") +
        ", " + Milliseconds(add * 1e-6) + " more";
  }
  finding.evidence += ".";
  finding.where =
      std::string(m.trace.name(m.trace.ops()[found.zeroing.front()].name));
  finding.assumption = "nothing reads a gradient before backward writes it";
  finding.fix_cpp =
      "optimizer.zero_grad()  (set_to_none is the default), not "
      "zero_grad(/*set_to_none=*/false)";
  finding.fix_python = "optimizer.zero_grad(set_to_none=True)  (the default)";
  finding.wrong_if = "gradients are accumulated over several backward passes";
  const Edit edit{.drop_zero_grad = true};
  finding = Sized(m, std::move(finding), edit, zero + add);
  return Fire(std::move(finding), {edit});
}

constexpr Rule kRules[] = {
    {.id = "zero-grad-kernels",
     .question = "Are gradients set to zero instead of to None?",
     .needs = {Kind::kOp},
     .check = &CheckZeroGrad,
     .reference = "PyTorch Performance Tuning Guide: Set gradients to None",
     .detect = "gradients are filled with zeros in a steady step; the gain is "
               "what replay makes of it, often nothing",
     .avoid = "gradients that are accumulated over several backward passes",
     .fix_cpp = "optimizer.zero_grad(), whose set_to_none is the default",
     .fix_python = "optimizer.zero_grad(set_to_none=True), the default"}};

}  // namespace

extern const std::span<const Rule> kGradients = kRules;

}  // namespace stepscope
