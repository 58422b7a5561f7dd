// Does the program loop over its parameters for something that the optimizer,
// or a single call, does? Sources: PyTorch documentation of weight_decay, "L2
// penalty", in torch.optim.SGD and Adam, and of torch.nn.utils.get_total_norm.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/program/forward_ops.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/plain_name.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace parameter_loops_rules {
namespace {

// The least tensors of a loop over parameters. With fewer, a rewrite is not
// worth it. Our own choice.
constexpr size_t kLeastTensors = 3;
// The loop must cover this share of all elements. A penalty on weights alone
// leaves out biases and norms, which are small.
constexpr double kLeastElements = 0.5;
// The most ops between two parameters of a loop: sum, multiply, add, read a
// value.
constexpr size_t kBetween = 6;

// --- parameter-penalty

// One loop over the parameters.
struct Sweep {
  size_t step = 0;
  size_t first = 0, last = 0;   // indices in ForwardOps::ops
  std::vector<RowId> ops = {};  // one per parameter
  bool trains = false;
  size_t reads = 0;  // values that the program reads in between
};

class SweepFinder {
 public:
  SweepFinder(const AnalysisContext& context, const ForwardOps& forward,
              const std::vector<GraphWalk>& passes)
      : m_(context), forward_(forward), parameters_(ParametersBySize(passes)) {
    for (const auto& [sizes, count] : parameters_) {
      elements_ +=
          static_cast<double>(count) * static_cast<double>(ElementsIn(sizes));
    }
  }

  std::vector<Sweep> Find() {
    for (size_t i = 0; i < forward_.ops.size(); ++i) {
      const RowId row = forward_.ops[i];
      const size_t step = SteadyStepAt(m_.steps, m_.trace.ops()[row].begin_ns);
      if (!open_.ops.empty() &&
          (step != open_.step || i - open_.last > kBetween)) {
        Close();
      }
      if (NameOf(row) == "item" && !open_.ops.empty()) ++open_.reads;
      if (step == m_.steps.windows.size() || !Measures(i)) continue;
      const bool trains = !forward_.NodesOf(row).empty();
      // A penalty has gradients, and a loop that only logs has none. So these
      // are two loops, even if one follows the other.
      if (!open_.ops.empty() && trains != open_.trains) Close();
      const Dims sizes = TensorArgument(m_.trace, row, 0).dims;
      if (left_.empty()) left_ = parameters_;
      // More tensors of a size than there are parameters of that size show that
      // a second loop has started.
      if (left_[sizes] == 0) {
        Close();
        left_ = parameters_;
      }
      if (open_.ops.empty()) {
        open_ = {.step = step, .first = i, .trains = trains};
      }
      --left_[sizes];
      open_.last = i;
      open_.ops.push_back(row);
    }
    Close();
    return std::move(found_);
  }

 private:
  // True if the op measures a whole tensor of the size of a parameter that no
  // op has made just before.
  bool Measures(size_t index) const {
    const RowId row = forward_.ops[index];
    const std::string_view name = NameOf(row);
    const TensorShape tensor = TensorArgument(m_.trace, row, 0);
    if (!tensor.known() || tensor.dims.empty() ||
        !parameters_.contains(tensor.dims)) {
      return false;
    }
    if (IsAnyOf(name, {"norm", "linalg_vector_norm"})) {
      if (!TakesAll(row, tensor.dims)) return false;
    } else if (IsAnyOf(name, {"pow", "square"}) ||
               (name == "mul" && TensorArgument(m_.trace, row, 1) == tensor)) {
      const RowId next = Computing(index, 1);
      if (next == kNone || !IsAnyOf(NameOf(next), {"sum", "mean"}) ||
          !TakesAll(next, tensor.dims)) {
        return false;
      }
    } else {
      return false;
    }
    const RowId before = Computing(index, -1);
    return before == kNone || !Makes(before, tensor.dims);
  }

  // Returns the next (or previous) op that is not a view; kNone if there is
  // none.
  RowId Computing(size_t index, int direction) const {
    for (size_t i = index + direction; i < forward_.ops.size();
         i += direction) {
      if (!m_.tree.traits(forward_.ops[i]).bookkeeping) return forward_.ops[i];
    }
    return kNone;
  }

  // True if the op reduces a tensor of these sizes over all its dimensions.
  bool TakesAll(RowId row, const Dims& sizes) const {
    if (TensorArgument(m_.trace, row, 0).dims != sizes) return false;
    const auto& arguments =
        m_.trace.op_inputs()[m_.trace.ops()[row].inputs].arguments;
    return std::ranges::all_of(arguments, [&](const Argument& one) {
      const std::string_view list = m_.trace.name(one.concrete);
      return !list.starts_with("[") || list == "[]" ||
             static_cast<size_t>(std::ranges::count(list, ',')) + 1 ==
                 sizes.size();
    });
  }

  // True if the op may make a tensor of these sizes from others of these sizes.
  bool Makes(RowId row, const Dims& sizes) const {
    const Op& op = m_.trace.ops()[row];
    if (op.inputs == kNone ||
        IsAnyOf(NameOf(row), {"sum", "mean", "norm", "linalg_vector_norm"})) {
      return false;
    }
    const auto& arguments = m_.trace.op_inputs()[op.inputs].arguments;
    return std::ranges::any_of(
               arguments,
               [&](const Argument& one) { return one.dims == sizes; }) &&
           std::ranges::all_of(arguments, [&](const Argument& one) {
             return one.dims.empty() || one.dims == sizes;
           });
  }

  std::string_view NameOf(RowId row) const {
    return PlainName(m_.trace.name(m_.trace.ops()[row].name));
  }

  void Close() {
    double elements = 0;
    for (RowId row : open_.ops) {
      elements += static_cast<double>(
          ElementsIn(TensorArgument(m_.trace, row, 0).dims));
    }
    if (open_.ops.size() >= kLeastTensors &&
        elements >= kLeastElements * elements_) {
      found_.push_back(std::move(open_));
    }
    open_ = {};
    left_.clear();
  }

  const AnalysisContext& m_;
  const ForwardOps& forward_;
  std::map<Dims, size_t> parameters_;  // number with a gradient, by size
  double elements_ = 0;                // of all these
  Sweep open_;
  std::map<Dims, size_t> left_;  // not yet met by the open sweep
  std::vector<Sweep> found_;
};

struct Penalties {
  double ns = 0;       // per step
  double tensors = 0;  // per step
  std::set<size_t> steps = {};
  const Sweep* first = nullptr;
};

// Returns the end of the ops after the sweep's last op that sum up its result,
// multiply it, and add it to the loss.
size_t EndOf(const AnalysisContext& m, const ForwardOps& forward,
             const Sweep& sweep) {
  const Dims last = TensorArgument(m.trace, sweep.ops.back(), 0).dims;
  size_t end = sweep.last + 1;
  for (; end < forward.ops.size() && end <= sweep.last + kBetween; ++end) {
    const Op& op = m.trace.ops()[forward.ops[end]];
    if (op.inputs == kNone || forward.NodesOf(forward.ops[end]).empty() ||
        std::ranges::any_of(m.trace.op_inputs()[op.inputs].arguments,
                            [&](const Argument& one) {
                              return !one.dims.empty() && one.dims != last;
                            })) {
      break;
    }
  }
  return end;
}

// Returns the cost of the sweeps that are part of the loss, with their backward
// passes. After a layer's gradient of a weight, the engine adds the penalty's
// gradient.
Penalties PriceOf(const AnalysisContext& m, const ForwardOps& forward,
                  const std::vector<GraphWalk>& passes,
                  const std::vector<Sweep>& sweeps) {
  Penalties found;
  std::vector<Span> spans;
  std::map<size_t, std::set<Dims>> sizes;  // by step
  for (const Sweep& sweep : sweeps) {
    if (!sweep.trains) continue;
    if (found.first == nullptr) found.first = &sweep;
    found.steps.insert(sweep.step);
    found.tensors += static_cast<double>(sweep.ops.size());
    for (size_t i = sweep.first; i < EndOf(m, forward, sweep); ++i) {
      spans.push_back(forward.WithCall(i));
      for (RowId node : forward.NodesOf(forward.ops[i])) {
        spans.push_back(forward.WithEngine(node));
      }
    }
    for (RowId row : sweep.ops) {
      sizes[sweep.step].insert(TensorArgument(m.trace, row, 0).dims);
    }
  }
  for (const GraphWalk& pass : passes) {
    for (const WalkedNode& node : pass.nodes) {
      for (RowId row : node.added) {
        if (sizes[pass.step].contains(TensorArgument(m.trace, row, 0).dims)) {
          spans.push_back(forward.SpanOf(row));
        }
      }
    }
  }
  const double steps = static_cast<double>(m.steps.steady.size());
  found.ns = forward.NsOf(std::move(spans)) / steps;
  found.tensors /= steps;
  return found;
}

Verdict CheckParameterPenalty(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return Clean();
  const std::vector<GraphWalk>& passes = m.graph_walks;
  if (passes.empty()) return Clean();
  const ForwardOps forward(m);
  const std::vector<Sweep> sweeps = SweepFinder(m, forward, passes).Find();
  const Penalties found = PriceOf(m, forward, passes, sweeps);
  if (!AreMostSteps(m.steps, found.steps.size()) ||
      found.ns * 1e-6 < MinReportableGainMs(m)) {
    return Clean();
  }
  const RowId row = found.first->ops.front();
  const Op& op = m.trace.ops()[row];
  Finding finding =
      FindingAbout(m, row, forward.ops[found.first->last],
                   "the penalty, from the first parameter to the last");
  finding.evidence =
      "The loss has a penalty that is computed parameter by parameter, with " +
      std::string(m.trace.name(op.name)) + " of " +
      MeanCount(found.tensors, "tensor") +
      " per step. With its backward pass, and the sums of its gradients and "
      "the layers', it takes " +
      Milliseconds(found.ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: the optimizer decays the weights at no cost, as fused ones do";
  finding.fix_python =
      "if it is the sum of squares: weight_decay=2 * factor in the optimizer "
      "(SGD, Adam), with parameter groups where only some are penalised; of "
      "norms that are not squared, torch._foreach_norm(list(parameters)) "
      "computes all in one call";
  finding.fix_cpp =
      "if it is the sum of squares: .weight_decay(2 * factor) in the options "
      "of the optimizer (SGD, Adam)";
  finding.wrong_if =
      "the optimizer is AdamW, which decays weights in another way, or the "
      "penalty is no function of single parameters";
  return FireBound(std::move(finding), found.ns);
}

// --- norms-one-by-one

// True for a loop over gradients that reads each norm. Without the reads, it is
// what clip_grad_norm_ itself does on a CPU.
bool ReadsGradients(const AnalysisContext& m,
                    const std::vector<GraphWalk>& passes, const Sweep& sweep,
                    Span span) {
  const Span& step = m.steps.windows[sweep.step].host;
  return !sweep.trains && 2 * sweep.reads >= sweep.ops.size() &&
         std::ranges::any_of(passes,
                             [&](const GraphWalk& pass) {
                               return pass.step == sweep.step &&
                                      pass.span.end_ns <= span.begin_ns;
                             }) &&
         LengthIn(m.parts.optimizer.spans, {span.end_ns, step.end_ns}) > 0;
}

Verdict CheckGradientNorms(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return Clean();
  const std::vector<GraphWalk>& passes = m.graph_walks;
  if (passes.empty()) return Clean();
  const ForwardOps forward(m);
  const std::vector<Sweep> sweeps = SweepFinder(m, forward, passes).Find();
  const double steps = static_cast<double>(m.steps.steady.size());
  double ns = 0, tensors = 0;
  std::set<size_t> in;
  Finding finding;
  for (const Sweep& sweep : sweeps) {
    const Span span{forward.SpanOf(sweep.ops.front()).begin_ns,
                    forward.WithCall(sweep.last).end_ns};
    if (!ReadsGradients(m, passes, sweep, span)) continue;
    ns += static_cast<double>(span.length()) / steps;
    tensors += static_cast<double>(sweep.ops.size()) / steps;
    in.insert(sweep.step);
    if (in.size() > 1) continue;
    finding.examples = {{m.steps.windows[sweep.step].number, span.begin_ns,
                         span.end_ns,
                         "the norms, from the first gradient to the last"}};
    finding.where = CallSites(m.trace).Place(m.steps.thread, span.begin_ns,
                                             sweep.ops.front());
  }
  if (!AreMostSteps(m.steps, in.size()) || ns * 1e-6 < MinReportableGainMs(m)) {
    return Clean();
  }
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      "Between backward and the optimizer, a loop computes the norm of " +
      MeanCount(tensors, "gradient") +
      " per step one by one, and reads each (.item()): " +
      Milliseconds(ns * 1e-6) + " per step.";
  finding.assumption = "at best: one call for all norms costs nothing";
  finding.fix_python =
      "torch.nn.utils.get_total_norm([p.grad for p in parameters]), or what "
      "clip_grad_norm_ returns; read it with .item() every N steps";
  finding.fix_cpp =
      "torch::nn::utils::clip_grad_norm_ returns the norm; or "
      "at::_foreach_norm of all gradients; read it every N steps";
  finding.wrong_if = "the program needs each norm in each step";
  return FireBound(std::move(finding), ns);
}

constexpr Rule kRules[] = {
    {.id = "norms-one-by-one",
     .question = "Does a loop compute and read the norm of each gradient?",
     .runs = Runs::kCpuOnly,
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kDispatch, Cause::kHostCode, Cause::kCompute},
     .check = &CheckGradientNorms,
     .reference = "PyTorch documentation, torch.nn.utils.get_total_norm",
     .detect =
         "in two thirds of the steps, norms, squares or powers of at least "
         "three tensors of the sizes of parameters, with half of all their "
         "elements, are computed in a row between backward and the optimizer, "
         "a value is read for half of them or more, and this takes 1 % of the "
         "step",
     .avoid = "nothing is read between the norms, as in clip_grad_norm_, or a "
              "GPU was recorded, where the reads are waits (host-sync)",
     .fix_cpp = "torch::nn::utils::clip_grad_norm_, at::_foreach_norm",
     .fix_python = "torch.nn.utils.get_total_norm"},
    {.id = "parameter-penalty",
     .question = "Does the loss contain a penalty on the parameters that the "
                 "optimizer could apply?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kHostCode},
     .check = &CheckParameterPenalty,
     .reference = "PyTorch documentation, torch.optim.SGD: weight_decay",
     .detect =
         "in two thirds of the steps, pow, square or a norm with a backward "
         "pass runs for at least three tensors of the sizes of parameters in "
         "a row, each as often as there are such parameters at most, with half "
         "of all parameters' elements, and this takes 1 % of the step",
     .avoid = "the tensors were computed just before, as differences from "
              "earlier weights are, or no backward pass visits the ops",
     .fix_cpp = "weight_decay in the options of the optimizer",
     .fix_python = "weight_decay in the optimizer"}};

}  // namespace
}  // namespace parameter_loops_rules

extern const std::span<const Rule> kParameterLoops =
    parameter_loops_rules::kRules;

}  // namespace stepscope
