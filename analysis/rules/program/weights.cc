// Does a step compute from its parameters alone what it could compute once, or
// leave to the optimizer?
// Sources: PyTorch documentation of torch.nn.utils.parametrize.cached, and of
// weight_decay, "L2 penalty", in torch.optim.SGD and Adam.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/program/forward_steps.h"
#include "evidence/program/graph_walks.h"
#include "evidence/program/plain_name.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace weights_rules {
namespace {

// Uses of a weight whose norm is estimated anew each time: the discriminator of
// a GAN judges real and generated samples, and a step of the power iteration
// for each is customary (spectral_norm).
constexpr size_t kCustomaryUses = 2;
// Of a loop over parameters. Our own choice: fewer are not worth another way to
// write it.
constexpr size_t kLeastTensors = 3;
// A penalty on weights alone leaves out biases and norms, which are small.
constexpr double kLeastElements = 0.5;
// Ops between two parameters of a loop: sum, multiply, add, read a value.
constexpr size_t kBetween = 6;

using Sizes = std::vector<int64_t>;

int64_t Elements(const Sizes& sizes) {
  int64_t elements = 1;
  for (int64_t size : sizes) elements *= size;
  return elements;
}

// --- recomputed-weights

// Uses of one op of parameters in one pass.
struct Uses {
  std::vector<size_t> ops = {};  // indices in ForwardOps::ops
  std::vector<Span> nodes = {};  // the engine's ranges
  size_t added = 0;  // nodes whose gradient is added to one of another use
  bool estimates = false;  // the norm of the weight
  size_t kept = 0;  // nodes that are a parameter's last: so many parameters
  RowId forward = kNone;
};

struct Recomputed {
  double ns = 0, runs = 0, parameters = 0;  // ns per step
  std::set<size_t> steps = {};
  RowId forward = kNone;  // of the op that takes most
  double longest = 0;
};

class RecomputedFinder {
 public:
  RecomputedFinder(const AnalysisContext& context, const ForwardOps& forward)
      : m_(context), forward_(forward) {}

  Recomputed Find(const std::vector<GraphWalk>& passes) {
    for (const GraphWalk& pass : passes) Add(pass);
    return std::move(found_);
  }

 private:
  using Key = std::pair<NameId, RowId>;  // an op with its sizes

  // The tensor of `op`, if it has one that is no scalar.
  std::optional<Sizes> OnlyTensor(RowId row) const {
    const Op& op = m_.trace.ops()[row];
    if (op.inputs == kNone) return {};
    std::optional<Sizes> only;
    for (const Argument& one : m_.trace.op_inputs()[op.inputs].arguments) {
      if (!one.elements.empty()) return {};
      if (one.dims.empty()) continue;
      // The norm that goes with a weight.
      const bool beside =
          m_.trace.name(op.name) == "aten::_weight_norm_interface";
      if (only && !beside) return {};
      if (!only) only = one.dims;
    }
    return only;
  }

  void Add(const GraphWalk& pass) {
    std::map<Key, Uses> groups;
    for (size_t i = 0; i < pass.nodes.size(); ++i) {
      AddNode(pass.nodes, i, groups);
    }
    for (const auto& [key, uses] : groups) {
      // Each parameter has one node that begins its sum, and one behind which
      // the sum is complete.
      const size_t least = uses.estimates ? kCustomaryUses : 1;
      if (uses.kept == 0 || uses.ops.size() <= least * uses.kept ||
          uses.ops.size() - uses.added > uses.kept) {
        continue;
      }
      Count(pass.step, uses);
    }
  }

  RowId ForwardOf(const WalkedNode& node) const {
    return m_.trace.ops()[node.row].forward;
  }

  // True if nodes[i] is of a view of what the op of nodes[i - 1] takes, all of
  // it: w.t().contiguous().
  bool IsViewFor(const std::vector<WalkedNode>& nodes, size_t i) const {
    if (i == 0 || i >= nodes.size() ||
        nodes[i - 1].sequence != nodes[i].sequence + 1 ||
        ForwardOf(nodes[i]) == kNone || ForwardOf(nodes[i - 1]) == kNone ||
        !m_.tree.traits(ForwardOf(nodes[i])).bookkeeping) {
      return false;
    }
    const std::optional<Sizes> of = OnlyTensor(ForwardOf(nodes[i]));
    const std::optional<Sizes> view = OnlyTensor(ForwardOf(nodes[i - 1]));
    return of && view && Elements(*of) == Elements(*view);
  }

  // True for ops that estimate the norm of a weight, as spectral_norm's.
  bool IsOfNorm(RowId forward) const {
    return forward != kNone &&
           IsAnyOf(PlainName(m_.trace.name(m_.trace.ops()[forward].name)),
                   {"mv", "dot", "vdot"});
  }

  void AddNode(const std::vector<WalkedNode>& nodes, size_t i,
               std::map<Key, Uses>& groups) const {
    RowId forward = ForwardOf(nodes[i]);
    if (forward == kNone || IsViewFor(nodes, i + 1)) return;
    const std::optional<Sizes> parameter = OnlyTensor(forward);
    if (!parameter) return;
    std::vector<Span> spans = {forward_.WithEngine(nodes[i].row)};
    if (m_.tree.traits(forward).bookkeeping) {
      if (!IsViewFor(nodes, i)) return;
      forward = ForwardOf(nodes[i - 1]);
      if (m_.tree.traits(forward).bookkeeping) return;
      spans.push_back(forward_.WithEngine(nodes[i - 1].row));
    }
    const size_t index = forward_.IndexOf(forward);
    if (index == forward_.ops.size()) return;
    const auto is_parameter = [&](const KeptGradient& one) {
      return one.gradient == *parameter;
    };
    bool kept = std::ranges::any_of(nodes[i].kept, is_parameter);
    bool estimates = false;
    for (size_t k = i + 1; k < nodes.size() && IsOfNorm(ForwardOf(nodes[k]));
         ++k) {
      spans.push_back(forward_.WithEngine(nodes[k].row));
      kept |= std::ranges::any_of(nodes[k].kept, is_parameter);
      estimates = true;
    }
    const Op& op = m_.trace.ops()[forward];
    Uses& uses = groups[{op.name, op.inputs}];
    uses.forward = forward;
    uses.ops.push_back(index);
    uses.nodes.insert(uses.nodes.end(), spans.begin(), spans.end());
    uses.added += std::ranges::any_of(nodes[i].added, [&](RowId row) {
      return TensorArgument(m_.trace, row, 0).dims == *parameter;
    });
    uses.kept += kept;
    uses.estimates |= estimates;
  }

  // From the last op that trains something else to the op: what lies between
  // may prepare it, as the power iteration of spectral_norm does.
  Span WithPreparation(size_t index) const {
    Span span = forward_.WithCall(index);
    for (size_t i = index; i-- > 0;) {
      const RowId row = forward_.ops[i];
      if (forward_.NodesOf(row).empty() || IsOfNorm(row)) continue;
      span.begin_ns = m_.trace.ops()[row].end_ns;
      break;
    }
    return span;
  }

  void Count(size_t step, const Uses& uses) {
    std::vector<size_t> ops = uses.ops;
    std::ranges::sort(ops);
    std::vector<Span> spans = uses.nodes;
    std::ranges::sort(spans, std::greater(), &Span::length);
    const size_t per_use = spans.size() / ops.size();
    spans.resize(spans.size() - per_use * uses.kept);  // the shortest remain
    for (size_t i = uses.kept; i < ops.size(); ++i) {
      spans.push_back(WithPreparation(ops[i]));
    }
    const double steps = static_cast<double>(m_.steps.steady.size());
    const double ns = forward_.NsOf(std::move(spans)) / steps;
    found_.ns += ns;
    found_.steps.insert(step);
    found_.runs += static_cast<double>(ops.size()) / steps;
    found_.parameters += static_cast<double>(uses.kept) / steps;
    if (ns <= found_.longest) return;
    found_.longest = ns;
    found_.forward = uses.forward;
  }

  const AnalysisContext& m_;
  const ForwardOps& forward_;
  Recomputed found_;
};

Verdict CheckRecomputedWeights(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return Clean();
  const std::vector<GraphWalk> passes = FindGraphWalks(m);
  if (passes.empty()) return Clean();
  const ForwardOps forward(m);
  const Recomputed found = RecomputedFinder(m, forward).Find(passes);
  if (!AreMostSteps(m.steps, found.steps.size()) ||
      found.ns * 1e-6 < MinReportableGainMs(m)) {
    return Clean();
  }
  const Op& op = m.trace.ops()[found.forward];
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.where =
      CallSites(m.trace).Place(op.thread, op.begin_ns, found.forward);
  finding.examples = {
      {m.steps.windows[SteadyStepAt(m.steps, op.begin_ns)].number, op.begin_ns,
       op.end_ns, OpWithShapes(m.trace, found.forward)}};
  finding.evidence =
      "Weights are computed again at each use: ops that take nothing but "
      "parameters, mainly " +
      OpWithShapes(m.trace, found.forward) + ", run " +
      MeanCount(found.runs, "time") + " per step for " +
      MeanCount(found.parameters, "parameter") +
      ". All runs but one for each parameter take " +
      Milliseconds(found.ns * 1e-6) + " per step, with their backward passes.";
  finding.assumption =
      "at best: the shortest runs remain, and what prepares the others goes "
      "with them";
  finding.fix_python =
      "with torch.nn.utils.parametrize.cached(): around the forward pass, for "
      "weight_norm, spectral_norm and others of "
      "torch.nn.utils.parametrizations; else compute the weight once in front "
      "of the loop, and pass it on";
  finding.fix_cpp =
      "compute the weight once in front of the loop, and pass it on";
  finding.wrong_if =
      "the runs are meant to differ, as steps of a power iteration may be";
  return FireBound(std::move(finding), found.ns);
}

// --- parameter-penalty

// One loop over the parameters.
struct Sweep {
  size_t step = 0;
  size_t first = 0, last = 0;   // indices in ForwardOps::ops
  std::vector<RowId> ops = {};  // one for each parameter
  bool trains = false;
  size_t reads = 0;  // values that the program reads in between
};

class SweepFinder {
 public:
  SweepFinder(const AnalysisContext& context, const ForwardOps& forward,
              const std::vector<GraphWalk>& passes)
      : m_(context), forward_(forward) {
    for (const GraphWalk& pass : passes) {
      std::map<Sizes, size_t> counts;
      for (const WalkedNode& node : pass.nodes) {
        for (const KeptGradient& one : node.kept) ++counts[one.gradient];
      }
      for (const auto& [sizes, count] : counts) {
        parameters_[sizes] = std::max(parameters_[sizes], count);
      }
    }
    for (const auto& [sizes, count] : parameters_) {
      elements_ += static_cast<double>(count) * Elements(sizes);
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
      if (!open_.ops.empty() && trains != open_.trains) Close();
      const Sizes sizes = TensorArgument(m_.trace, row, 0).dims;
      if (left_.empty()) left_ = parameters_;
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
  // True if the op measures a tensor that has the sizes of a parameter, all of
  // it, and no op made that tensor just before.
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

  // The next op, or the one before, that is no view; kNone if there is none.
  RowId Computing(size_t index, int direction) const {
    for (size_t i = index + direction; i < forward_.ops.size();
         i += direction) {
      if (!m_.tree.traits(forward_.ops[i]).bookkeeping) return forward_.ops[i];
    }
    return kNone;
  }

  // True if the op reduces a tensor of these sizes over all its dimensions.
  bool TakesAll(RowId row, const Sizes& sizes) const {
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

  // True if the op may make a tensor of these sizes of others of these sizes.
  bool Makes(RowId row, const Sizes& sizes) const {
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
      elements +=
          static_cast<double>(Elements(TensorArgument(m_.trace, row, 0).dims));
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
  std::map<Sizes, size_t> parameters_;  // how many have a gradient
  double elements_ = 0;                 // of these
  Sweep open_;
  std::map<Sizes, size_t> left_;  // that the open sweep has not met
  std::vector<Sweep> found_;
};

struct Penalties {
  double ns = 0;       // per step
  double tensors = 0;  // per step
  std::set<size_t> steps = {};
  const Sweep* first = nullptr;
};

// Behind the last op of the sweep: the sum of its result, and what multiplies
// it and adds it to the loss.
size_t EndOf(const AnalysisContext& m, const ForwardOps& forward,
             const Sweep& sweep) {
  const Sizes last = TensorArgument(m.trace, sweep.ops.back(), 0).dims;
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

// The sweeps that are part of the loss, with their backward passes. Behind a
// layer's gradient of a weight, the engine adds that of the penalty.
Penalties PriceOf(const AnalysisContext& m, const ForwardOps& forward,
                  const std::vector<GraphWalk>& passes,
                  const std::vector<Sweep>& sweeps) {
  Penalties found;
  std::vector<Span> spans;
  std::map<size_t, std::set<Sizes>> sizes;  // by step
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
  const std::vector<GraphWalk> passes = FindGraphWalks(m);
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

// A loop over gradients that reads each norm. Without reading, it is what
// clip_grad_norm_ does itself on a CPU.
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
  const std::vector<GraphWalk> passes = FindGraphWalks(m);
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
     .fix_python = "weight_decay in the optimizer"},
    {.id = "recomputed-weights",
     .question = "Are weights that follow from parameters alone computed again "
                 "at each use?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kHostCode},
     .check = &CheckRecomputedWeights,
     .reference = "PyTorch documentation, torch.nn.utils.parametrize.cached: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.nn.utils.parametrize.cached.html",
     .detect =
         "in two thirds of the steps, an op whose only tensor is a parameter "
         "(or a view of it; aten::_weight_norm_interface) has more nodes in a "
         "backward pass than there are such parameters: the engine adds up "
         "their gradients; the runs beyond one for each take 1 % of the step",
     .avoid = "the op is a view or a matrix product, the runs have backward "
              "passes of their own, as for the two losses of a GAN, or there "
              "are two that each estimate the norm of the weight "
              "(spectral_norm)",
     .fix_cpp = "compute the weight once per step",
     .fix_python = "torch.nn.utils.parametrize.cached()"}};

}  // namespace
}  // namespace weights_rules

extern const std::span<const Rule> kWeights = weights_rules::kRules;

}  // namespace stepscope
