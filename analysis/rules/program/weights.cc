// Does a step recompute a result of its parameters alone? Source: PyTorch
// documentation of torch.nn.utils.parametrize.cached.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/program/forward_ops.h"
#include "evidence/program/plain_name.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace weights_rules {
namespace {

// Customary uses per step of a weight whose norm is estimated anew each time.
// The discriminator of a GAN judges real and generated samples, and
// spectral_norm usually takes a step of the power iteration for each.
constexpr size_t kCustomaryUses = 2;
// The uses in one pass of an op on parameters.
struct Uses {
  std::vector<size_t> ops = {};  // indices in ForwardOps::ops
  std::vector<Span> nodes = {};  // the engine's ranges
  size_t added = 0;        // nodes whose gradient is added to another use's
  bool estimates = false;  // estimates the norm of the weight
  size_t kept = 0;         // nodes that complete a gradient: one per parameter
  RowId forward = kNone;
};

struct Recomputed {
  double ns = 0, runs = 0, parameters = 0;  // ns per step
  std::set<size_t> steps = {};
  RowId forward = kNone;  // of the op with most time
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

  // Returns the op's only tensor, unless it is a scalar.
  std::optional<Dims> OnlyTensor(RowId row) const {
    const Op& op = m_.trace.ops()[row];
    if (op.inputs == kNone) return {};
    std::optional<Dims> only;
    for (const Argument& one : m_.trace.op_inputs()[op.inputs].arguments) {
      if (!one.elements.empty()) return {};
      if (one.dims.empty()) continue;
      // Allow the norm that belongs to a weight.
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
      // Each parameter has one node that starts its sum, and one node after
      // which the sum is complete.
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

  // True if nodes[i] belongs to a view of the whole input of the op of nodes[i
  // - 1]: w.t().contiguous().
  bool IsViewFor(const std::vector<WalkedNode>& nodes, size_t i) const {
    if (i == 0 || i >= nodes.size() ||
        nodes[i - 1].sequence != nodes[i].sequence + 1 ||
        ForwardOf(nodes[i]) == kNone || ForwardOf(nodes[i - 1]) == kNone ||
        !m_.tree.traits(ForwardOf(nodes[i])).bookkeeping) {
      return false;
    }
    const std::optional<Dims> of = OnlyTensor(ForwardOf(nodes[i]));
    const std::optional<Dims> view = OnlyTensor(ForwardOf(nodes[i - 1]));
    return of && view && ElementsIn(*of) == ElementsIn(*view);
  }

  // True for ops that estimate the norm of a weight, as spectral_norm does.
  bool IsOfNorm(RowId forward) const {
    return forward != kNone &&
           IsAnyOf(PlainName(m_.trace.name(m_.trace.ops()[forward].name)),
                   {"mv", "dot", "vdot"});
  }

  void AddNode(const std::vector<WalkedNode>& nodes, size_t i,
               std::map<Key, Uses>& groups) const {
    RowId forward = ForwardOf(nodes[i]);
    // An op on a view of a parameter is counted with the node of the view,
    // which comes next.
    if (forward == kNone || IsViewFor(nodes, i + 1)) return;
    const std::optional<Dims> parameter = OnlyTensor(forward);
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

  // Returns the span from the last op that trains something else to the end of
  // this op. Ops in between may prepare it, as the power iteration of
  // spectral_norm does.
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
  const std::vector<GraphWalk>& passes = m.graph_walks;
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

constexpr Rule kRules[] = {
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
