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

// Counts of updates may differ from that of parameters by 10 %: parameters
// without a gradient are not updated, and some ops also update scalars.
constexpr double kSameCount = 0.1;

// Calls of one op in the optimizer's steps, and the bytes of the tensors they
// update.
struct Updates {
  double calls = 0;
  double bytes = 0;
};

void CountOps(const AnalysisContext& context, OptimizerWork& work) {
  if (context.steps.thread == kNone) return;
  const double steps = static_cast<double>(context.steps.steady.size());
  for (RowId row : context.tree.of_thread(context.steps.thread)) {
    const Op& op = context.trace.ops()[row];
    if (!LiesIn(work.spans, op.begin_ns)) continue;
    const std::string_view name = context.trace.name(op.name);
    // A CPU-only run counts ops, a run with a GPU launches.
    if (name.starts_with("aten::_foreach_") ||
        name.starts_with("aten::_fused_")) {
      work.grouped = true;
    }
    work.fused |= name.starts_with("aten::_fused_");
    if (IsUpdate(name) && !context.has_gpu) work.updates += 1 / steps;
  }
}

// Number of tensors per parameter that a fused optimizer moves. It reads the
// parameter, its gradient and its state, and writes all but the gradient: 3 for
// plain SGD, 5 with momentum, 7 with a second moment as in Adam. The recorded
// ops show which: momentum needs a product, a second moment a root or addcmul.
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

// See OptimizerWork::fused_traffic.
double FusedTraffic(const AnalysisContext& context, const OptimizerWork& work) {
  std::map<std::string_view, Updates> by_name;
  double moved = 0;
  for (RowId row : context.tree.of_thread(context.steps.thread)) {
    const Op& op = context.trace.ops()[row];
    if (!context.tree.computes(row) || !LiesIn(work.spans, op.begin_ns))
      continue;
    const std::string_view name = context.trace.name(op.name);
    if (!IsUpdate(name)) continue;
    const double bytes = CostOf(context.trace, row).bytes;
    if (bytes <= 0) continue;  // scalars and step counters
    moved += bytes;
    Updates& updates = by_name[name];
    ++updates.calls;
    updates.bytes += static_cast<double>(
        BytesOf(context.trace, TensorArgument(context.trace, row, 0)));
  }
  // The size of all parameters follows from an op that is called the same
  // number of times for each of them.
  const double parameters =
      work.parameters * static_cast<double>(context.steps.steady.size());
  double bytes = 0, nearest = 1e300;
  for (const auto& [name, updates] : by_name) {
    const double times =
        std::max(1.0, std::round(updates.calls / std::max(parameters, 1.0)));
    const double off = std::abs(updates.calls / times - parameters);
    if (off >= nearest) continue;
    nearest = off;
    bytes = updates.bytes / times;
  }
  // Without an op that fits the number of parameters, their size is unknown.
  if (moved <= 0 || nearest > kSameCount * parameters) return -1;
  return std::min(1.0, FusedTensors(by_name) * bytes / moved);
}

}  // namespace

bool LiesIn(const std::vector<Span>& spans, int64_t time) {
  const auto after = std::ranges::upper_bound(spans, time, {}, &Span::begin_ns);
  return after != spans.begin() && time < std::prev(after)->end_ns;
}

OptimizerWork MeasureOptimizer(const AnalysisContext& context) {
  OptimizerWork work;
  for (const Span& span : context.parts.optimizer.spans) {
    if (InSteadyStep(context.steps, span.begin_ns)) work.spans.push_back(span);
  }
  work.inferred = context.parts.optimizer.inferred;
  const auto passes =
      AccumulationsOfAPass(context.trace, context.tree, context.steps);
  for (size_t i : context.steps.steady) {
    work.parameters += static_cast<double>(passes[i].size()) /
                       static_cast<double>(context.steps.steady.size());
  }
  CountOps(context, work);
  const double steps = static_cast<double>(context.steps.steady.size());
  work.host_ns = static_cast<double>(Length(work.spans)) / steps;
  if (context.has_gpu) {
    for (const RuntimeCall& call : context.trace.runtime_calls()) {
      if (LiesIn(work.spans, call.begin_ns) &&
          context.trace.name(call.name).find("Launch") !=
              std::string_view::npos) {
        work.updates += 1 / steps;
      }
    }
    for (const KernelUse& use : context.kernels.uses) {
      const RowId call = context.trace.kernels()[use.kernel].call;
      if (use.kind == KernelClass::kOptimizer && call != kNone &&
          LiesIn(work.spans, context.trace.runtime_calls()[call].begin_ns)) {
        work.grouped = true;
      }
    }
  }
  for (const auto& timeline : context.timelines) {
    for (const Segment& segment : timeline) {
      if ((segment.cause == Cause::kDispatch ||
           segment.cause == Cause::kHostCode) &&
          LiesIn(work.spans, segment.begin_ns)) {
        work.overhead_ns += static_cast<double>(segment.length()) / steps;
      }
    }
  }
  if (!context.has_gpu && context.steps.thread != kNone) {
    work.fused_traffic = FusedTraffic(context, work);
  }
  return work;
}

}  // namespace stepscope
