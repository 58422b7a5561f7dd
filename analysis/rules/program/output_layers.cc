// Does a loop over positions apply a layer whose results only the loss reads?
// Source: the documentation of torch.nn.Linear and
// torch.nn.functional.cross_entropy, which take any number of leading
// dimensions: one call works on the states of all positions.
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
#include "evidence/program/recurrence.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "ops/op_traits.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"
#include "words/quantities.h"

namespace stepscope {
namespace output_layers_rules {
namespace {

constexpr char kChange[] = "layer applied once, behind the loop";

// What may read the results and no position needs.
bool IsLoss(std::string_view name) {
  return IsAnyOf(
      name, {"cross_entropy_loss", "nll_loss", "nll_loss_nd", "log_softmax",
             "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div",
             "binary_cross_entropy", "binary_cross_entropy_with_logits"});
}
// What keeps the results for later.
bool Stores(std::string_view name) {
  return IsAnyOf(name, {"copy", "detach", "dropout", "clone"});
}

// The calls of one layer in one step, each for one position.
struct Layer {
  size_t step = 0;
  std::vector<RowId> calls = {};   // in time order
  std::vector<RowId> behind = {};  // the losses right behind them, and the
                                   // views and sums of scalars around those
  std::vector<RowId> nodes = {};   // of the calls
  std::vector<RowId> sums = {};    // of the gradients of the weight
  RowId loss = kNone;              // the first one
  double code_ns = 0;              // the program's, between all of these
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Layer> Find() {
    std::vector<Layer> found;
    for (const ForwardStep& step : m_.forward) {
      for (const auto& at : RepeatedLayers(m_.trace, step, kLeastRepeats)) {
        if (!IsProduct(PlainNameOf(m_.trace, step.ops[at.front()]))) continue;
        if (std::optional<Layer> layer = Deferrable(step, at)) {
          found.push_back(*std::move(layer));
        }
      }
    }
    return found;
  }

 private:
  // The layer that is called at step.ops[at...], if no op in the loop needs its
  // results, all calls share their weights, and no gradient is computed before
  // the last call.
  std::optional<Layer> Deferrable(const ForwardStep& step,
                                  const std::vector<size_t>& at) {
    Layer layer{.step = step.step};
    const std::optional<Dims> made = ResultDims(m_.trace, step.ops[at.front()]);
    if (!made) return {};
    for (size_t i = at.front(); i < step.ops.size(); ++i) {
      const RowId row = step.ops[i];
      if (std::ranges::binary_search(at, i)) {
        layer.calls.push_back(row);
        continue;
      }
      // Behind the last call anything may read the results.
      if (i > at.back()) break;
      if (!TakesElements(m_.trace, row, ElementsIn(*made))) continue;
      const std::string_view name = PlainNameOf(m_.trace, row);
      if (IsLoss(name)) {
        if (layer.loss == kNone) layer.loss = row;
      } else if (!Stores(name) && !m_.tree.traits(row).bookkeeping) {
        return {};
      }
    }
    for (size_t i : at) AddBehind(step, i, layer);
    if (!gradients_) gradients_.emplace(m_);
    const int64_t last_ns = m_.trace.ops()[layer.calls.back()].end_ns;
    for (RowId row : layer.calls) {
      for (RowId node : gradients_->NodesOf(row)) {
        if (m_.trace.ops()[node].begin_ns < last_ns) return {};
        layer.nodes.push_back(node);
      }
    }
    if (layer.nodes.empty()) return {};
    const RowId call = layer.calls.front();
    const auto [first, last] = std::ranges::minmax(layer.nodes);
    layer.sums = gradients_->SumsAmong(
        first, last,
        ElementsIn(DimsOf(m_.trace, call, WeightArgument(m_.trace, call))));
    // Without these sums the layers have weights of their own.
    if (2 * layer.sums.size() < at.size()) return {};
    return layer;
  }

  // What follows the call step.ops[i] and is for its results alone.
  void AddBehind(const ForwardStep& step, size_t i, Layer& layer) const {
    const std::span<const Op> ops = m_.trace.ops();
    while (i + 1 < step.ops.size()) {
      const int64_t pause =
          ops[step.ops[i + 1]].begin_ns - ops[step.ops[i]].end_ns;
      layer.code_ns +=
          static_cast<double>(std::clamp<int64_t>(pause, 0, kFrameworkGapNs));
      const RowId row = step.ops[++i];
      if (!IsLoss(PlainNameOf(m_.trace, row)) &&
          !m_.tree.traits(row).bookkeeping && !TakesScalarsOnly(row)) {
        return;
      }
      layer.behind.push_back(row);
    }
  }

  bool TakesScalarsOnly(RowId row) const {
    const RowId inputs = m_.trace.ops()[row].inputs;
    return inputs != kNone &&
           std::ranges::all_of(
               m_.trace.op_inputs()[inputs].arguments, [](const Argument& one) {
                 return one.dims.empty() && one.elements.empty();
               });
  }

  const AnalysisContext& m_;
  std::optional<LayerGradients> gradients_;  // made for the first layer
};

Verdict CheckOutputLayerInLoop(const AnalysisContext& m) {
  const std::vector<Layer> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  MergedCalls merged(m);
  double calls = 0;
  for (const Layer& one : found) {
    const auto count = static_cast<double>(one.calls.size());
    calls += count;
    merged.AddCode(one.code_ns, count);
    for (RowId row : one.sums) merged.Remove(row);
    for (RowId row : one.calls) merged.Add(row, count);
    for (RowId row : one.behind) merged.Add(row, count);
  }
  const MergedCalls::Sum sum = merged.Total(kChange);
  const Layer& layer = *std::ranges::max_element(
      found, {}, [](const Layer& one) { return one.calls.size(); });
  Finding finding = FindingAbout(m, layer.calls.front(), layer.calls.back(),
                                 "the layer of the first to the last position");
  const std::string reader =
      layer.loss == kNone
          ? "no op of the loop"
          : "no other op of the loop than " +
                std::string(m.trace.name(m.trace.ops()[layer.loss].name));
  finding.evidence =
      std::string(m.trace.name(m.trace.ops()[layer.calls.front()].name)) +
      " runs " +
      MeanCount(calls / static_cast<double>(m.steps.steady.size()), "time") +
      " per step with the same weight, and " + reader +
      " reads the results. With the backward passes, which add up a gradient "
      "of the weight for each call, this takes " +
      Milliseconds(sum.ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: one call for all positions computes at the best rate of such "
      "products, and the code around the calls runs once";
  finding.fix_python =
      "collect the states in a list and apply the layer once, behind the loop: "
      "logits = layer(torch.stack(states, 1)); loss = "
      "F.cross_entropy(logits.flatten(0, 1), targets.flatten())";
  finding.fix_cpp =
      "collect the states in a vector and apply the layer once, behind the "
      "loop: layer(torch::stack(states, 1)).flatten(0, 1)";
  finding.wrong_if =
      "a position needs the results of the one before it, or there is no "
      "memory for the results of all positions";
  return FireBound(std::move(finding), sum.bound_ns);
}

constexpr Rule kRules[] = {
    {.id = "output-layer-in-loop",
     .question = "Does a loop over positions apply a layer whose results only "
                 "the loss reads?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kHostCode},
     .check = &CheckOutputLayerInLoop,
     .reference = "PyTorch documentation, torch.nn.Linear: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.nn.Linear.html",
     .detect =
         "in two thirds of the steps, a product with a matrix runs at least 8 "
         "times with the same sizes; until the last one, only losses, copies "
         "and views read tensors as large as its result; and the backward pass "
         "follows the last one and adds up gradients of the weight, one for "
         "each",
     .avoid = "another op reads the results, such as argmax in a decoder that "
              "goes on from its own words; each call has a weight of its own; "
              "or gradients are computed after each call",
     .fix_cpp = "the layer once for all positions, behind the loop: "
                "torch::stack(states, 1)",
     .fix_python = "the layer once for all positions, behind the loop: "
                   "torch.stack(states, 1)"}};

}  // namespace
}  // namespace output_layers_rules

extern const std::span<const Rule> kOutputLayers = output_layers_rules::kRules;

}  // namespace stepscope
