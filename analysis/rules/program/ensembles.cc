// Do networks of equal shape, each with its own weights, run one after the
// other? Source: PyTorch tutorials, "Model ensembling":
// torch.func.stack_module_state and torch.vmap run all members at once.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/gradients/layer_calls.h"
#include "evidence/program/merged_calls.h"
#include "evidence/program/op_shapes.h"
#include "ops/op_arguments.h"
#include "ops/op_traits.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace ensembles_rules {
namespace {

// Two networks may also be the two critics of an actor, or two heads. Our own
// choice.
constexpr size_t kLeastMembers = 3;
constexpr size_t kLeastLayers = 2;     // of a member
constexpr size_t kLongestMember = 64;  // ops
constexpr char kChange[] = "networks run at once";

// Consecutive equal chains of ops, in one step.
struct Ensemble {
  size_t step = 0;
  size_t members = 0, layers = 0;
  std::vector<RowId> ops = {};  // of all members
  Dims input = {}, output = {};
  double code_ns = 0;  // the program's code between the ops
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Ensemble> Find() {
    std::vector<Ensemble> found;
    for (const ForwardStep& step : m_.forward) {
      std::vector<RowId> ops;
      for (RowId row : step.ops) {
        if (!m_.tree.traits(row).bookkeeping) ops.push_back(row);
      }
      for (size_t i = 0; i < ops.size(); ++i) {
        if (WeightArgument(m_.trace, ops[i]) == 0) continue;
        std::optional<Ensemble> one = EnsembleAt(ops, i);
        if (!one) continue;
        i += one->ops.size() - 1;
        one->step = step.step;
        found.push_back(*std::move(one));
      }
    }
    return found;
  }

 private:
  bool Same(RowId a, RowId b) const {
    const Op &one = m_.trace.ops()[a], &other = m_.trace.ops()[b];
    return one.name == other.name && one.inputs == other.inputs &&
           one.inputs != kNone;
  }

  // Returns the longest series of equal chains that starts with ops[first].
  std::optional<Ensemble> EnsembleAt(std::span<const RowId> ops, size_t first) {
    // Any distance up to the longest member may be the period. Comparing one
    // pair of ops rules out most distances.
    const size_t most =
        std::min(kLongestMember, (ops.size() - first) / kLeastMembers);
    for (size_t period = kLeastLayers; period <= most; ++period) {
      if (!Same(ops[first], ops[first + period])) continue;
      size_t end = first + period;
      while (end < ops.size() && Same(ops[end - period], ops[end])) ++end;
      // Ops after the last layer of the last member may differ.
      size_t last_layer = period - 1;
      while (WeightArgument(m_.trace, ops[first + last_layer]) == 0) {
        --last_layer;
      }
      const size_t members =
          (end - first) / period + ((end - first) % period > last_layer);
      if (members < kLeastMembers) continue;
      const size_t length = std::min(end - first, members * period);
      std::optional<Ensemble> one =
          Members(ops.subspan(first, length), period, members);
      if (one) return one;
    }
    return {};
  }

  // True if the op before each chain but the first picks that chain's input
  // from a larger tensor that no op of the chains makes. An expert, for
  // example, gets its own tokens and not the result of the previous expert.
  bool PicksInput(std::span<const RowId> chains, size_t period,
                  const Dims& input) const {
    const RowId pick = chains[period - 1];
    const std::string_view name = PlainNameOf(m_.trace, pick);
    if (name != "index_select" && name != "index") return false;
    const Dims& source = DimsOf(m_.trace, pick, 0);
    if (source.empty() || input.empty() || source.back() != input.back() ||
        ElementsIn(source) <= ElementsIn(input)) {
      return false;
    }
    return std::ranges::none_of(chains.first(period), [&](RowId row) {
      const bool in_place =
          m_.trace.name(m_.trace.ops()[row].name).ends_with('_');
      return !in_place && ResultDims(m_.trace, row) == source;
    });
  }

  // Returns the ensemble for equal chains of `period` ops, the last of which
  // may lack the ops after its layers. Nullopt if a chain may take the result
  // of the previous chain, or if the chains share their weights.
  std::optional<Ensemble> Members(std::span<const RowId> chains, size_t period,
                                  size_t members) {
    const RowId first = chains.front();
    const size_t weight = WeightArgument(m_.trace, first);
    Ensemble one{.members = members,
                 .ops = {chains.begin(), chains.end()},
                 .input = DimsOf(m_.trace, first, weight - 1)};
    const int64_t elements = ElementsIn(one.input);
    const bool picks = PicksInput(chains, period, one.input);
    for (RowId row : chains.first(period)) {
      const std::optional<Dims> made = ResultDims(m_.trace, row);
      // The next chain may take this result, as layers of one network do.
      if (!picks && made && ElementsIn(*made) == elements) return {};
      if (WeightArgument(m_.trace, row) == 0) continue;
      if (!made) return {};
      ++one.layers;
      one.output = *made;
    }
    if (one.layers < kLeastLayers) return {};
    if (!gradients_) gradients_.emplace(m_);
    std::vector<RowId> calls;  // calls of each chain's first layer
    for (size_t i = 0; i < chains.size(); i += period) {
      calls.push_back(chains[i]);
    }
    const std::vector<RowId> nodes = gradients_->NodesBehind(calls);
    if (nodes.empty()) return {};
    const auto [low, high] = std::ranges::minmax(nodes);
    if (gradients_->KeptAmong(low, high, DimsOf(m_.trace, first, weight)) <
        one.members - 1) {
      return {};
    }
    for (size_t i = 1; i < chains.size(); ++i) {
      one.code_ns += CodeNs(m_.trace, chains[i - 1], chains[i]);
    }
    return one;
  }

  const AnalysisContext& m_;
  std::optional<LayerGradients> gradients_;  // made when first needed
};

Verdict CheckNetworksOneByOne(const AnalysisContext& m) {
  const std::vector<Ensemble> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  MergedCalls merged(m);
  for (const Ensemble& one : found) {
    const auto count = static_cast<double>(one.members);
    merged.AddCode(one.code_ns, count);
    for (RowId row : one.ops) merged.Add(row, count);
  }
  MergedCalls::Sum sum = merged.Total(kChange);
  const Ensemble& largest = *std::ranges::max_element(
      found, {}, [](const Ensemble& one) { return one.ops.size(); });
  Finding finding = FindingAbout(m, largest.ops.front(), largest.ops.back(),
                                 "the first to the last network");
  finding.evidence =
      Count(static_cast<int64_t>(largest.members), "network") +
      " of one shape, with " +
      Count(static_cast<int64_t>(largest.layers), "layer") +
      " each that make " + InBrackets(largest.output) + " of " +
      InBrackets(largest.input) +
      ", run one after the other, each with weights of its own. With their "
      "backward passes, this takes " +
      Milliseconds(sum.ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: batched products run at the best rate of such products, and "
      "the code around the calls runs once";
  finding.fix_python =
      "stack the weights and run all networks at once: params, buffers = "
      "torch.func.stack_module_state(models), and torch.vmap of "
      "torch.func.functional_call; or torch.baddbmm with weights of [networks, "
      "inputs, outputs]";
  finding.fix_cpp =
      "stack the weights and run all networks at once: torch::baddbmm with "
      "weights of [networks, inputs, outputs]";
  finding.wrong_if = "a network takes what the one before it made";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = sum.bound_ns,
                    .trials = {std::move(sum.edit)}});
}

constexpr Rule kRules[] = {
    {.id = "networks-one-by-one",
     .question = "Do networks of one shape, each with its own weights, run one "
                 "after the other?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kHostCode},
     .check = &CheckNetworksOneByOne,
     .reference = "PyTorch tutorials, Model ensembling: "
                  "https://docs.pytorch.org/tutorials/intermediate/"
                  "ensembling.html",
     .detect =
         "in two thirds of the steps, three or more equal chains of ops with "
         "two layers or more follow each other; no op in them makes a tensor "
         "as large as what they take, so that none takes the result of "
         "another, or each takes rows picked from one larger tensor; and the "
         "backward pass keeps a gradient of the first weight "
         "for each",
     .avoid = "the chains share their weights, are blocks of one deep network, "
              "or each is trained before the next one runs",
     .fix_cpp = "torch::baddbmm with stacked weights",
     .fix_python = "torch.func.stack_module_state and torch.vmap"}};

}  // namespace
}  // namespace ensembles_rules

extern const std::span<const Rule> kEnsembles = ensembles_rules::kRules;

}  // namespace stepscope
