#include "evidence/optimizer_work.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "ops/op_arguments.h"
#include "steps/steady_steps.h"

namespace stepscope {
namespace {

// Parameters without a gradient are not updated; others have scalars beside
// them.
constexpr double kSameCount = 0.1;

// Calls of one op in the optimizer's steps, and the bytes of the tensors they
// update.
struct Updates {
  double calls = 0;
  double bytes = 0;
};

void CountOps(const AnalysisContext& m, OptimizerWork& work) {
  if (m.steps.thread == kNone) return;
  const double steps = static_cast<double>(m.steps.steady.size());
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    if (!LiesIn(work.spans, op.begin_ns)) continue;
    const std::string_view name = m.trace.name(op.name);
    if (name.starts_with("aten::_foreach_") ||
        name.starts_with("aten::_fused_")) {
      work.grouped = true;
    }
    work.fused |= name.starts_with("aten::_fused_");
    if (IsUpdate(name) && !m.has_gpu) work.updates += 1 / steps;
  }
}

// A fused step reads the parameter, its gradient and its state once and writes
// all but the gradient. Momentum shows as a product, a second moment as a root
// or as products of three.
double FusedTensors(const std::map<std::string_view, Updates>& by_name) {
  bool momentum = false, second_moment = false;
  for (const auto& [name, updates] : by_name) {
    momentum |=
        name == "aten::mul_" || name == "aten::mul" || name == "aten::lerp_";
    second_moment |= name == "aten::sqrt" || name == "aten::addcmul_" ||
                     name == "aten::addcdiv_";
  }
  return second_moment ? 7 : momentum ? 5 : 3;
}

double FusedTraffic(const AnalysisContext& m, const OptimizerWork& work) {
  std::map<std::string_view, Updates> by_name;
  double moved = 0;
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    if (!m.tree.computes(row) || !LiesIn(work.spans, op.begin_ns)) continue;
    const std::string_view name = m.trace.name(op.name);
    if (!IsUpdate(name)) continue;
    const double bytes = CostOf(m.trace, row).bytes;
    if (bytes <= 0) continue;  // scalars, counters
    moved += bytes;
    Updates& updates = by_name[name];
    ++updates.calls;
    updates.bytes +=
        static_cast<double>(BytesOf(m.trace, TensorArgument(m.trace, row, 0)));
  }
  // The parameters' bytes, by an op that takes each of them equally often.
  const double parameters =
      work.parameters * static_cast<double>(m.steps.steady.size());
  double bytes = 0, nearest = 1e300;
  for (const auto& [name, updates] : by_name) {
    const double times =
        std::max(1.0, std::round(updates.calls / std::max(parameters, 1.0)));
    const double off = std::abs(updates.calls / times - parameters);
    if (off >= nearest) continue;
    nearest = off;
    bytes = updates.bytes / times;
  }
  if (moved <= 0 || nearest > kSameCount * parameters) return -1;
  return std::min(1.0, FusedTensors(by_name) * bytes / moved);
}

}  // namespace

bool LiesIn(const std::vector<Span>& spans, int64_t time) {
  const auto after = std::ranges::upper_bound(spans, time, {}, &Span::begin_ns);
  return after != spans.begin() && time < std::prev(after)->end_ns;
}

OptimizerWork MeasureOptimizer(const AnalysisContext& m) {
  OptimizerWork work;
  for (const Span& span : m.parts.optimizer.spans) {
    if (InSteadyStep(m.steps, span.begin_ns)) work.spans.push_back(span);
  }
  work.inferred = m.parts.optimizer.inferred;
  const auto passes = AccumulationsOfAPass(m.trace, m.tree, m.steps);
  for (size_t i : m.steps.steady) {
    work.parameters += static_cast<double>(passes[i].size()) /
                       static_cast<double>(m.steps.steady.size());
  }
  CountOps(m, work);
  const double steps = static_cast<double>(m.steps.steady.size());
  work.host_ns = static_cast<double>(Length(work.spans)) / steps;
  if (m.has_gpu) {
    for (const RuntimeCall& call : m.trace.runtime_calls()) {
      if (LiesIn(work.spans, call.begin_ns) &&
          m.trace.name(call.name).find("Launch") != std::string_view::npos) {
        work.updates += 1 / steps;
      }
    }
    for (const KernelUse& use : m.kernels.uses) {
      const RowId call = m.trace.kernels()[use.kernel].call;
      if (use.kind == KernelClass::kOptimizer && call != kNone &&
          LiesIn(work.spans, m.trace.runtime_calls()[call].begin_ns)) {
        work.grouped = true;
      }
    }
  }
  for (const auto& timeline : m.timelines) {
    for (const Segment& segment : timeline) {
      if ((segment.cause == Cause::kDispatch ||
           segment.cause == Cause::kHostCode) &&
          LiesIn(work.spans, segment.begin_ns)) {
        work.overhead_ns += static_cast<double>(segment.length()) / steps;
      }
    }
  }
  if (!m.has_gpu && m.steps.thread != kNone) {
    work.fused_traffic = FusedTraffic(m, work);
  }
  return work;
}

}  // namespace stepscope
