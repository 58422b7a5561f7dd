// Does a loop over positions apply a layer whose results only the loss reads?
// Source: the documentation of torch.nn.Linear and
// torch.nn.functional.cross_entropy, which take any number of leading
// dimensions, so that one call works on the states of all positions.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
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
#include "words/quantities.h"

namespace stepscope {
namespace output_layers_rules {
namespace {

constexpr char kChange[] = "layer applied once, behind the loop";

// True for ops that may read the results without the next position needing
// theirs.
bool IsLoss(std::string_view name) {
  return IsAnyOf(
      name, {"cross_entropy_loss", "nll_loss", "nll_loss_nd", "log_softmax",
             "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div",
             "binary_cross_entropy", "binary_cross_entropy_with_logits"});
}
// True for ops that keep the results for later.
bool Stores(std::string_view name) {
  return IsAnyOf(name,
                 {"broadcast_tensors", "copy", "detach", "dropout", "clone"});
}

// The calls of one layer in one step, each for one position.
struct Layer {
  size_t step = 0;
  std::vector<RowId> calls = {};   // in time order
  std::vector<RowId> behind = {};  // the losses right after them, and the
                                   // views and sums of scalars around these
  std::vector<RowId> nodes = {};   // backward nodes of the calls
  std::vector<RowId> sums = {};    // of gradients of the weight
  RowId loss = kNone;              // the first loss
  bool hidden = false;             // only other such layers read the results
  double code_ns = 0;              // the program's code between all of these
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Layer> Find() {
    std::vector<Layer> found;
    for (const ForwardStep& step : m_.forward) {
      std::vector<std::vector<size_t>> left =
          RepeatedLayers(m_.trace, step, kLeastRepeats);
      std::erase_if(left, [&](const std::vector<size_t>& at) {
        return !IsProduct(PlainNameOf(m_.trace, step.ops[at.front()]));
      });
      std::set<RowId> later;  // calls that can be made after the loop
      const auto is_deferrable = [&](const std::vector<size_t>& at) {
        std::optional<Layer> layer = Deferrable(step, at, later);
        if (!layer) return false;
        later.insert(layer->calls.begin(), layer->calls.end());
        found.push_back(*std::move(layer));
        return true;
      };
      // Layers before those that were found may then be deferrable, too.
      while (std::erase_if(left, is_deferrable) > 0) {
      }
    }
    return found;
  }

 private:
  // Returns the layer that step.ops[at...] call, if no op in the loop except
  // layers of `later` needs its results, all calls share their weights, and no
  // gradient is computed before the last call.
  std::optional<Layer> Deferrable(const ForwardStep& step,
                                  const std::vector<size_t>& at,
                                  const std::set<RowId>& later) {
    Layer layer{.step = step.step};
    const std::optional<Dims> made = ResultDims(m_.trace, step.ops[at.front()]);
    if (!made) return {};
    const int64_t elements = ElementsIn(*made);
    bool newest = false;     // a call made the newest tensor of that size
    bool passes_on = false;  // to layers of `later`
    // After the last call, any op may read the results.
    for (size_t i = at.front(); i <= at.back(); ++i) {
      const RowId row = step.ops[i];
      if (std::ranges::binary_search(at, i)) {
        if (newest && FeedsItself(row, elements)) return {};
        layer.calls.push_back(row);
        newest = true;
        continue;
      }
      const int64_t taken = TensorsOfSize(m_.trace, row, elements);
      const std::string_view name = PlainNameOf(m_.trace, row);
      // An op that takes one tensor of the size is assumed to take the newest.
      if (taken > 1 || (taken > 0 && newest)) {
        if (IsLoss(name)) {
          if (layer.loss == kNone) layer.loss = row;
        } else if (taken == 1 && IsElementwise(name) && !later.empty()) {
          passes_on = true;
          continue;  // an activation between two layers
        } else if (later.contains(row)) {
          passes_on = true;
        } else if (taken == 1 && Stores(name)) {
          continue;  // a stored result may be read later
        } else if (!Stores(name) &&
                   (!m_.tree.traits(row).bookkeeping || TakesPart(row))) {
          return {};
        }
      }
      if (m_.tree.traits(row).bookkeeping) continue;
      // The op may also take an older tensor, made by a call.
      if (taken > 0 && !newest && !layer.calls.empty() && !IsLoss(name) &&
          !Stores(name) && !IsElementwise(name) && !later.contains(row) &&
          WeightArgument(m_.trace, row) == 0) {
        return {};
      }
      const std::optional<Dims> result = ResultDims(m_.trace, row);
      if (result && ElementsIn(*result) == elements) newest = false;
    }
    layer.hidden = passes_on && layer.loss == kNone;
    for (size_t i : at) AddBehind(step, i, layer);
    if (!gradients_) gradients_.emplace(m_);
    layer.nodes = gradients_->NodesBehind(layer.calls);
    if (layer.nodes.empty()) return {};
    const RowId call = layer.calls.front();
    const auto [first, last] = std::ranges::minmax(layer.nodes);
    layer.sums = gradients_->SumsAmong(
        first, last,
        ElementsIn(DimsOf(m_.trace, call, WeightArgument(m_.trace, call))));
    // Without these sums, each call has a weight of its own.
    if (2 * layer.sums.size() < at.size()) return {};
    return layer;
  }

  // True if the layer may take the result of its previous call, with `elements`
  // elements.
  bool FeedsItself(RowId call, int64_t elements) const {
    const Dims& weight = DimsOf(m_.trace, call, WeightArgument(m_.trace, call));
    return TensorsOfSize(m_.trace, call, elements) >
           (ElementsIn(weight) == elements ? 1 : 0);
  }

  // True for a view of only part of the tensor, whose readers are unknown.
  bool TakesPart(RowId view) const {
    if (TakesApart(m_.trace, view)) return true;
    const std::optional<Dims> part = PartDims(m_.trace, view);
    return part && ElementsIn(*part) < ElementsIn(DimsOf(m_.trace, view, 0));
  }

  // Adds the ops after the call step.ops[i] that only work on its results.
  void AddBehind(const ForwardStep& step, size_t i, Layer& layer) const {
    while (i + 1 < step.ops.size()) {
      layer.code_ns += CodeNs(m_.trace, step.ops[i], step.ops[i + 1]);
      const RowId row = step.ops[++i];
      if (!IsLoss(PlainNameOf(m_.trace, row)) &&
          !m_.tree.traits(row).bookkeeping && !TakesScalarsOnly(row) &&
          !(layer.hidden && IsElementwise(PlainNameOf(m_.trace, row)))) {
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
  std::optional<LayerGradients> gradients_;  // made when first needed
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
  const Layer& layer =
      *std::ranges::max_element(found, {}, [](const Layer& one) {
        return std::pair(!one.hidden, one.calls.size());
      });
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
      " per step with the same weight, and " + reader + " reads the results" +
      (std::ranges::any_of(found, &Layer::hidden)
           ? ", layers in front of it that nothing else reads included"
           : "") +
      ". With the backward passes, which add up a gradient "
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
         "times with the same sizes; until the last one, only losses, copies, "
         "views and such layers read its results, as far as sizes tell; and "
         "the backward pass "
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
