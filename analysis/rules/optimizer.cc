// Does the optimizer update parameters one by one?
// Source: "17 tips", number 5 (fused optimizers, about 5 %). With fewer than 50
// parameters there is little to fuse.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_evidence.h"
#include "report/words.h"
#include "rule.h"

namespace stepscope {
namespace {

constexpr double kParameters = 50;
constexpr double kPerLaunch = 300;  // tensors that one foreach launch takes
constexpr double kLaunchNs = 10'000;
constexpr double kRangeNs = 50'000;  // what a fused step costs the host anyway

// Where the optimizer steps on the training thread, in steady steps.
struct OptimizerWork {
  std::vector<Span> spans = {};
  bool inferred = false;
  double parameters = 0;   // per step
  double updates = 0;      // ops or launches per step
  double host_ns = 0;      // per step
  double overhead_ns = 0;  // of it outside computing; CPU-only runs
  bool grouped = false;    // foreach or fused
};

bool IsSteady(const Measured& m, int64_t time) {
  return std::ranges::any_of(m.steps.steady, [&](size_t i) {
    const Span& host = m.steps.windows[i].host;
    return host.begin_ns <= time && time < host.end_ns;
  });
}

std::vector<Span> NamedSpans(const Measured& m) {
  std::vector<Span> spans;
  for (const Range& range : m.trace.ranges()) {
    const std::string_view name = m.trace.name(range.name);
    const bool optimizer =
        (range.kind == RangeKind::kOptimizer &&
         name.starts_with("Optimizer.step")) ||
        (range.kind == RangeKind::kPhase && name == "optimizer");
    if (optimizer && range.thread == m.steps.thread &&
        IsSteady(m, range.begin_ns)) {
      spans.push_back({range.begin_ns, range.end_ns});
    }
  }
  return Merge(std::move(spans));
}

bool IsUpdate(std::string_view name) {
  for (std::string_view update :
       {"aten::add_", "aten::mul_", "aten::addcdiv_", "aten::addcmul_",
        "aten::sub_", "aten::lerp_", "aten::sqrt", "aten::div_", "aten::div",
        "aten::add", "aten::copy_", "aten::mul"}) {
    if (name == update) return true;
  }
  return name.starts_with("aten::_foreach_") ||
         name.starts_with("aten::_fused_");
}

// LibTorch marks nothing: the updates that follow the last accumulated
// gradient, until something else begins.
std::vector<Span> InferredSpans(const Measured& m) {
  if (m.steps.thread == kNone) return {};
  std::vector<int64_t> last(m.steps.windows.size());
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    if (!m.tree.traits(row).accumulate_grad) continue;
    const Op& op = m.trace.ops()[row];
    for (size_t i : m.steps.steady) {
      const Span& host = m.steps.windows[i].host;
      if (host.begin_ns <= op.begin_ns && op.begin_ns < host.end_ns) {
        last[i] = std::max(last[i], op.end_ns);
      }
    }
  }
  std::vector<Span> spans;
  const std::span<const RowId> ops = m.tree.of_thread(m.steps.thread);
  for (size_t i : m.steps.steady) {
    if (last[i] == 0) continue;
    Span span{last[i], last[i]};
    auto next = std::ranges::lower_bound(ops, last[i], {}, [&](RowId row) {
      return m.trace.ops()[row].begin_ns;
    });
    for (; next != ops.end(); ++next) {
      const Op& op = m.trace.ops()[*next];
      const std::string_view name = m.trace.name(op.name);
      const bool inside = op.end_ns <= span.end_ns;
      if (op.begin_ns >= m.steps.windows[i].host.end_ns ||
          (!inside && !IsUpdate(name) && !m.tree.traits(*next).bookkeeping)) {
        break;
      }
      span.end_ns = std::max(span.end_ns, op.end_ns);
    }
    if (span.length() > 0) spans.push_back(span);
  }
  return Merge(std::move(spans));
}

bool Inside(const std::vector<Span>& spans, int64_t time) {
  const auto after = std::ranges::upper_bound(spans, time, {}, &Span::begin_ns);
  return after != spans.begin() && time < std::prev(after)->end_ns;
}

void CountOps(const Measured& m, OptimizerWork& work) {
  if (m.steps.thread == kNone) return;
  const double steps = static_cast<double>(m.steps.steady.size());
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    if (!Inside(work.spans, op.begin_ns)) continue;
    const std::string_view name = m.trace.name(op.name);
    if (name.starts_with("aten::_foreach_") ||
        name.starts_with("aten::_fused_")) {
      work.grouped = true;
    }
    if (IsUpdate(name) && !m.has_gpu) work.updates += 1 / steps;
  }
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    if (m.tree.traits(row).accumulate_grad &&
        IsSteady(m, m.trace.ops()[row].begin_ns)) {
      work.parameters += 1 / steps;
    }
  }
}

OptimizerWork Measure(const Measured& m) {
  OptimizerWork work;
  work.spans = NamedSpans(m);
  if (work.spans.empty()) {
    work.spans = InferredSpans(m);
    work.inferred = true;
  }
  CountOps(m, work);
  const double steps = static_cast<double>(m.steps.steady.size());
  work.host_ns = static_cast<double>(Length(work.spans)) / steps;
  if (m.has_gpu) {
    for (const RuntimeCall& call : m.trace.runtime_calls()) {
      if (Inside(work.spans, call.begin_ns) &&
          m.trace.name(call.name).find("Launch") != std::string_view::npos) {
        work.updates += 1 / steps;
      }
    }
    for (const KernelUse& use : m.kernels.uses) {
      const RowId call = m.trace.kernels()[use.kernel].call;
      if (use.kind == KernelClass::kOptimizer && call != kNone &&
          Inside(work.spans, m.trace.runtime_calls()[call].begin_ns)) {
        work.grouped = true;
      }
    }
  }
  for (const auto& timeline : m.timelines) {
    for (const Segment& segment : timeline) {
      if ((segment.cause == Cause::kDispatch ||
           segment.cause == Cause::kHostCode) &&
          Inside(work.spans, segment.begin_ns)) {
        work.overhead_ns += static_cast<double>(segment.length()) / steps;
      }
    }
  }
  return work;
}

// A few launches in place of many; the kernels without what each of them costs
// at least.
Edit Grouped(const Measured& m, const OptimizerWork& work) {
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
        !Inside(work.spans, m.trace.runtime_calls()[call].begin_ns)) {
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

Verdict CheckUnfusedOptimizer(const Measured& m) {
  const OptimizerWork work = Measure(m);
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
                : "at best: no framework code between the updates";
  finding.fix_cpp =
      "torch::optim has neither: call at::_fused_adamw_ (or at::_foreach_add_ "
      "and friends) on the lists of parameters in a step of your own";
  finding.fix_python = "torch.optim.AdamW(..., fused=True), or foreach=True";
  finding.wrong_if = "the parameters are sparse, or of mixed types";
  if (!m.has_gpu) {
    if (work.overhead_ns <= 0) return Fire(std::move(finding));
    finding.gain_is = GainKind::kBound;
    finding.gain = {work.overhead_ns * 1e-6, 0, work.overhead_ns * 1e-6};
    return Fire(std::move(finding));
  }
  Edit edit = Grouped(m, work);
  finding = Sized(m, std::move(finding), edit, work.host_ns);
  return Fire(std::move(finding), {std::move(edit)});
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
