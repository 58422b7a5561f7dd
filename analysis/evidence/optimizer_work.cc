#include "evidence/optimizer_work.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"

namespace stepscope {
namespace {

constexpr std::string_view kForeach = "aten::_foreach_";

// The number of updates may differ by 10 % from the number of parameters:
// parameters without a gradient are not updated, and some ops also update
// scalars.
constexpr double kSameCount = 0.1;

// Calls of one op in the optimizer's steps, and the bytes (for foreach ops: the
// elements) of the tensors that it updates.
struct Updates {
  double calls = 0;
  double bytes = 0;
};

// Counts the update ops of a CPU-only run, because one fused call replaces
// them. On a run with a GPU, launches are counted instead (MeasureOptimizer()).
void CountOps(const AnalysisContext& context, OptimizerWork& work) {
  if (context.steps.thread == kNone) return;
  const double steps = static_cast<double>(context.steps.steady.size());
  for (RowId row : context.tree.of_thread(context.steps.thread)) {
    const Op& op = context.trace.ops()[row];
    if (!Covers(work.spans, op.begin_ns)) continue;
    const std::string_view name = context.trace.name(op.name);
    if (name.starts_with("aten::_foreach_") ||
        name.starts_with("aten::_fused_")) {
      work.grouped = true;
    }
    work.fused |= name.starts_with("aten::_fused_");
    if (context.tree.traits(row).update && !context.has_gpu) {
      work.updates += 1 / steps;
    }
  }
}

// Returns how many tensors per parameter a fused optimizer moves. It reads the
// parameter, its gradient and its state, and writes all but the gradient: 3 for
// plain SGD, 5 with momentum, 7 with a second moment as in Adam. The recorded
// ops show which of these applies: momentum needs a product, a second moment a
// root or addcmul.
double FusedTensors(const std::map<std::string_view, Updates>& by_name) {
  bool momentum = false, second_moment = false;
  for (const auto& [op, updates] : by_name) {
    std::string_view name = op;
    name.remove_prefix(name.starts_with(kForeach) ? kForeach.size() : 6);
    momentum |= name == "mul_" || name == "mul" || name == "lerp_";
    second_moment |= name == "sqrt" || name == "addcmul_" || name == "addcdiv_";
  }
  return second_moment ? 7 : momentum ? 5 : 3;
}

// Returns how many tensors a foreach op reads and writes per parameter: all of
// its lists, and the result. Guessed from the name if arguments were not
// recorded.
double ListsMoved(const Trace& trace, const Op& op) {
  const std::string_view name = trace.name(op.name);
  double lists = Contains(name, "addc") ? 3 : Contains(name, "lerp") ? 2 : 1;
  if (op.inputs != kNone) {
    const auto& arguments = trace.op_inputs()[op.inputs].arguments;
    const auto known = std::ranges::count_if(
        arguments, [](const Argument& one) { return !one.elements.empty(); });
    if (known > 0) lists = static_cast<double>(known);
  }
  return lists + 1;
}

// Returns the elements of the first list; 0 if unknown.
double ElementsOfList(const Trace& trace, const Op& op) {
  if (op.inputs == kNone) return 0;
  const auto& arguments = trace.op_inputs()[op.inputs].arguments;
  if (arguments.empty()) return 0;
  double all = 0;
  for (const Argument& tensor : arguments[0].elements) {
    double elements = 1;
    for (int64_t size : tensor.dims) elements *= static_cast<double>(size);
    all += elements;
  }
  return all;
}

// Fills in foreach_traffic, foreach_left and foreach_ops of `work`. Memory, not
// arithmetic, limits updates. So the bytes that a fused step moves, compared
// with those of the recorded ops, tell how long it takes.
void MeasureForeach(const AnalysisContext& context, OptimizerWork& work) {
  const Trace& trace = context.trace;
  std::map<std::string_view, Updates> by_name;
  Updates moved;
  Paces paces;
  double all_ns = 0;
  for (RowId row : context.tree.of_thread(context.steps.thread)) {
    const Op& op = trace.ops()[row];
    const std::string_view name = trace.name(op.name);
    if (!name.starts_with(kForeach) || !Covers(work.spans, op.begin_ns)) {
      continue;
    }
    ++work.foreach_ops;
    const double elements = ElementsOfList(trace, op);
    ++by_name[name].calls;
    by_name[name].bytes += elements;
    const double lists = ListsMoved(trace, op);
    moved.calls += lists;
    moved.bytes += elements * lists;
    const auto ns = static_cast<double>(op.end_ns - op.begin_ns);
    all_ns += ns;
    if (elements > 0)
      paces.push_back({ns / elements / lists, elements * lists});
  }
  if (by_name.empty()) return;
  // The op with the fewest calls is called once per group of parameters, with
  // all parameters of the group.
  Updates once = by_name.begin()->second;
  for (const auto& [name, all] : by_name) {
    if (all.calls < once.calls ||
        (all.calls == once.calls && all.bytes > once.bytes)) {
      once = all;
    }
  }
  const double tensors = FusedTensors(by_name);
  work.foreach_traffic =
      std::min(1.0, moved.bytes > 0 ? tensors * once.bytes / moved.bytes
                                    : tensors * once.calls / moved.calls);
  const double fused_ns = tensors * once.bytes * MedianPace(std::move(paces));
  work.foreach_left =
      fused_ns > 0 ? std::min(1.0, fused_ns / all_ns) : work.foreach_traffic;
}

std::string NameOf(const AnalysisContext& context) {
  for (const Range& range : context.trace.ranges()) {
    const std::string_view name = OptimizerOf(context.trace, range);
    if (!name.empty()) return std::string(name);
  }
  return "";
}

// The optimizers of torch.optim that have a fused version (torch 2.5), and the
// operator that each calls.
constexpr std::pair<std::string_view, std::string_view> kFusedVersions[] = {
    {"Adagrad", "at::_fused_adagrad_"},
    {"Adam", "at::_fused_adam_"},
    {"AdamW", "at::_fused_adamw_"},
    {"SGD", "at::_fused_sgd_"}};

// Computes OptimizerWork::fused_left, the same measure for a CPU-only run, in
// which the bytes of each op are known from its shapes.
double FusedLeft(const AnalysisContext& context, const OptimizerWork& work) {
  std::map<std::string_view, Updates> by_name;
  Paces paces;
  double all_ns = 0;
  for (RowId row : context.tree.of_thread(context.steps.thread)) {
    const Op& op = context.trace.ops()[row];
    if (!context.tree.computes(row) || !context.tree.traits(row).update ||
        !Covers(work.spans, op.begin_ns)) {
      continue;
    }
    const std::string_view name = context.trace.name(op.name);
    const double bytes = CostOf(context.trace, row).bytes;
    if (bytes <= 0) continue;  // scalars and step counters
    const auto ns = static_cast<double>(op.end_ns - op.begin_ns);
    all_ns += ns;
    paces.push_back({ns / bytes, bytes});
    Updates& updates = by_name[name];
    ++updates.calls;
    updates.bytes += static_cast<double>(
        BytesOf(context.trace, TensorArgument(context.trace, row, 0)));
  }
  // An op that is called the same number of times for each parameter gives the
  // total size of the parameters.
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
  // If no op fits the number of parameters, their size is unknown.
  if (all_ns <= 0 || nearest > kSameCount * parameters) return -1;
  return std::min(1.0, FusedTensors(by_name) * bytes *
                           MedianPace(std::move(paces)) / all_ns);
}

}  // namespace

// Reads the class from the name of the range that torch.optim opens around
// step().
std::string_view OptimizerOf(const Trace& trace, const Range& range) {
  constexpr std::string_view kBefore = "Optimizer.step#", kAfter = ".step";
  std::string_view name = trace.name(range.name);
  if (range.kind != RangeKind::kOptimizer || !name.starts_with(kBefore)) {
    return "";
  }
  name.remove_prefix(kBefore.size());
  if (!name.ends_with(kAfter)) return "";
  name.remove_suffix(kAfter.size());
  return name;
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
      if (Covers(work.spans, call.begin_ns) &&
          context.trace.name(call.name).find("Launch") !=
              std::string_view::npos) {
        work.updates += 1 / steps;
      }
    }
    for (const KernelUse& use : context.kernels.uses) {
      const RowId call = context.trace.kernels()[use.kernel].call;
      if (use.kind == KernelClass::kOptimizer && call != kNone &&
          Covers(work.spans, context.trace.runtime_calls()[call].begin_ns)) {
        work.grouped = true;
      }
    }
  }
  for (const auto& timeline : context.timelines) {
    for (const Segment& segment : timeline) {
      if ((segment.cause == Cause::kDispatch ||
           segment.cause == Cause::kHostCode) &&
          Covers(work.spans, segment.begin_ns)) {
        work.overhead_ns += static_cast<double>(segment.length()) / steps;
      }
    }
  }
  if (context.steps.thread != kNone) {
    if (!context.has_gpu) work.fused_left = FusedLeft(context, work);
    MeasureForeach(context, work);
  }
  work.name = NameOf(context);
  return work;
}

double MedianPace(Paces paces) {
  std::ranges::sort(paces);
  double whole = 0, passed = 0;
  for (const auto& [pace, moved] : paces) whole += moved;
  for (const auto& [pace, moved] : paces) {
    passed += moved;
    if (2 * passed >= whole) return pace;
  }
  return 0;
}

std::string FusedOptimizerInPython(const OptimizerWork& work) {
  if (work.name.empty()) {
    return "fused=True (available in torch.optim.AdamW, Adam, SGD and Adagrad)";
  }
  const bool has_one = std::ranges::any_of(
      kFusedVersions, [&](const auto& one) { return one.first == work.name; });
  return has_one ? "torch.optim." + work.name + "(..., fused=True)"
                 : work.name +
                       " has no fused version in torch.optim; AdamW, Adam, SGD "
                       "and Adagrad have one (fused=True)";
}

std::string FusedOptimizerInCpp(const OptimizerWork& work) {
  for (const auto& [name, op] : kFusedVersions) {
    if (name == work.name) return std::string(op);
  }
  return "at::_fused_sgd_, at::_fused_adamw_ or at::_fused_adam_";
}

}  // namespace stepscope
