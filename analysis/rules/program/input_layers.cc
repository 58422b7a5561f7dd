// Does a loop apply layers to one part of the data at a time?
// Source: PyTorch documentation: layers take batches, and torch.flatten and
// torch.unflatten turn further dimensions, such as time, into one.
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
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "ops/op_traits.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace input_layers_rules {
namespace {

// Fewer calls may also be those for pairs and triplets of samples.
constexpr size_t kLeastCalls = 4;
constexpr char kChange[] = "layers applied to all parts at once";

// A chain of layers and other ops that each part of the data passes through, in
// one step.
struct Encoder {
  size_t step = 0;
  std::vector<RowId> ops = {};   // of all passes
  std::vector<RowId> sums = {};  // sums of gradients of the first weight
  size_t calls = 0, layers = 0;  // calls of the first layer; layers per pass
  double code_ns = 0;            // the program's code between all of these
  Dims part = {};
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Encoder> Find() {
    std::vector<Encoder> found;
    for (const ForwardStep& step : m_.forward) {
      int64_t end_ns = 0;  // end of the previous encoder
      std::vector<std::vector<size_t>> layers =
          RepeatedLayers(m_.trace, step, kLeastCalls);
      std::ranges::sort(layers, {}, [](const auto& at) { return at.front(); });
      for (const std::vector<size_t>& at : layers) {
        const Op& call = m_.trace.ops()[step.ops[at.front()]];
        if (call.begin_ns < end_ns) continue;
        std::optional<Encoder> one = EncoderAt(step, at);
        if (!one) continue;
        end_ns = m_.trace.ops()[one->ops.back()].end_ns;
        found.push_back(*std::move(one));
      }
    }
    return found;
  }

 private:
  std::optional<Encoder> EncoderAt(const ForwardStep& step,
                                   const std::vector<size_t>& at) {
    const RowId first = step.ops[at.front()];
    const size_t weight = WeightArgument(m_.trace, first);
    Encoder one{.step = step.step,
                .calls = at.size(),
                .part = DimsOf(m_.trace, first, weight - 1)};
    if (!TakesApartBefore(step.ops, at.front(), one.part, at.size()) &&
        !PicksEach(step.ops, at, one.part)) {
      return {};
    }
    if (!gradients_) gradients_.emplace(m_);
    // A part that needs a gradient may depend on the previous pass, as in a
    // recurrence. The passes then cannot run at once.
    if (gradients_->MakesInputGradient(first)) return {};
    std::vector<RowId> calls(at.size());
    std::ranges::transform(at, calls.begin(),
                           [&](size_t i) { return step.ops[i]; });
    const std::vector<RowId> nodes = gradients_->NodesBehind(calls);
    if (nodes.empty()) return {};
    const auto [low, high] = std::ranges::minmax(nodes);
    one.sums = gradients_->SumsAmong(
        low, high, ElementsIn(DimsOf(m_.trace, first, weight)));
    // Without these sums, each call has a weight of its own.
    if (2 * one.sums.size() < at.size()) return {};
    AddPasses(step.ops, at, one);
    return one;
  }

  // True if an op before the loop splits a tensor into `count` such parts.
  bool TakesApartBefore(std::span<const RowId> ops, size_t loop,
                        const Dims& part, size_t count) const {
    for (RowId row : ops.first(loop)) {
      if (!TakesApart(m_.trace, row)) continue;
      const Dims& dims = DimsOf(m_.trace, row, 0);
      if (!part.empty() &&
          ElementsIn(dims) >= static_cast<int64_t>(count) * ElementsIn(part)) {
        return true;
      }
    }
    return false;
  }

  // True if each call takes a part that was picked since the previous call.
  bool PicksEach(std::span<const RowId> ops, const std::vector<size_t>& at,
                 const Dims& part) const {
    size_t from = 0;
    for (size_t to : at) {
      if (!PicksBefore(ops, from, to, part)) return false;
      from = to;
    }
    return true;
  }

  // True if the last op in ops(from, to) that makes a tensor of these sizes
  // takes it from a larger tensor, or works on such a part elementwise.
  bool PicksBefore(std::span<const RowId> ops, size_t from, size_t to,
                   const Dims& part) const {
    bool picked = false;
    for (size_t i = from; i < to; ++i) {
      const RowId row = ops[i];
      const std::optional<Dims> taken = PartDims(m_.trace, row);
      if (taken == part) {
        picked = ElementsIn(DimsOf(m_.trace, row, 0)) > ElementsIn(part);
      } else if (!m_.tree.traits(row).bookkeeping &&
                 ResultDims(m_.trace, row) == part) {
        picked &= Activations(row) == 1;
      }
    }
    return picked;
  }

  // Returns how many tensors of at least two dimensions `row` takes besides a
  // weight.
  size_t Activations(RowId row) const {
    const RowId inputs = m_.trace.ops()[row].inputs;
    if (inputs == kNone) return 0;
    size_t count = 0;
    for (const Argument& one : m_.trace.op_inputs()[inputs].arguments) {
      count += one.dims.size() >= 2;
      count += 2 * one.elements.size();  // a list joins its elements
    }
    return count - (WeightArgument(m_.trace, row) > 0 ? 1 : 0);
  }

  // True if the chain continues with `row`: the op takes one tensor, or is the
  // sum of two tensors of one size, as for a residual connection.
  bool Continues(RowId row) const {
    const std::string_view name = PlainNameOf(m_.trace, row);
    // Losses and copies use the result of each pass separately, and recurrent
    // layers carry a state from pass to pass.
    if (Contains(name, "loss") || Contains(name, "_cell") ||
        IsAnyOf(name, {"lstm", "gru", "copy", "item"})) {
      return false;
    }
    const size_t activations = Activations(row);
    return activations == 1 ||
           (activations == 2 && IsElementwise(name) &&
            TakesTwo(m_.trace, row, DimsOf(m_.trace, row, 0)));
  }

  // Adds the ops after each call that all passes have in common.
  void AddPasses(std::span<const RowId> ops, const std::vector<size_t>& at,
                 Encoder& one) const {
    size_t length = ops.size();
    for (size_t k = 0; k < at.size(); ++k) {
      const size_t end = k + 1 < at.size() ? at[k + 1] : ops.size();
      size_t same = 1;
      while (at[k] + same < end && same < length) {
        const RowId row = ops[at[k] + same];
        const Op& op = m_.trace.ops()[row];
        const Op& first = m_.trace.ops()[ops[at[0] + same]];
        const bool view = m_.tree.traits(row).bookkeeping;
        if (op.name != first.name || (!view && op.inputs != first.inputs) ||
            (!view && !Continues(row))) {
          break;
        }
        ++same;
      }
      length = std::min(length, same);
    }
    for (size_t k = 0; k < at.size(); ++k) {
      for (size_t i = at[k]; i < at[k] + length; ++i) {
        const RowId row = ops[i];
        if (m_.tree.traits(row).bookkeeping) continue;
        one.ops.push_back(row);
        one.layers += k == 0 && WeightArgument(m_.trace, row) > 0;
        if (i > 0) one.code_ns += CodeNs(m_.trace, ops[i - 1], row);
      }
    }
  }

  const AnalysisContext& m_;
  std::optional<LayerGradients> gradients_;  // made when first needed
};

Verdict CheckInputLayerInLoop(const AnalysisContext& m) {
  const std::vector<Encoder> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  MergedCalls merged(m);
  for (const Encoder& one : found) {
    const auto count = static_cast<double>(one.calls);
    merged.AddCode(one.code_ns, count);
    for (RowId row : one.sums) merged.Remove(row);
    for (RowId row : one.ops) merged.Add(row, count);
  }
  const MergedCalls::Sum sum = merged.Total(kChange);
  const Encoder& largest = *std::ranges::max_element(
      found, {}, [](const Encoder& one) { return one.ops.size(); });
  Finding finding = FindingAbout(m, largest.ops.front(), largest.ops.back(),
                                 "the first to the last part of the data");
  finding.evidence =
      Count(static_cast<int64_t>(largest.layers), "layer") +
      (largest.layers == 1 ? " runs " : " run ") +
      Count(static_cast<int64_t>(largest.calls), "time") +
      " per step with the same weights, each time on another part of " +
      InBrackets(largest.part) +
      " of the data, from which no gradient is needed; " +
      std::string(m.trace.name(m.trace.ops()[largest.ops.front()].name)) +
      " is the first. With the ops between and the backward passes, this takes "
      "up to " +
      Milliseconds(sum.ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: one call for all parts computes at the best rate of such "
      "products, and the code around the calls runs once";
  finding.fix_python =
      "apply the layers once, before the loop: features = "
      "encoder(frames.flatten(0, 1)).unflatten(0, frames.shape[:2]), and take "
      "features[:, t] in the loop";
  finding.fix_cpp =
      "apply the layers once, before the loop: "
      "encoder(frames.flatten(0, 1)).unflatten(0, {batch, length})";
  finding.wrong_if =
      "batch normalisation in the layers is meant for each part alone, or "
      "there is no memory for the activations of all parts";
  return FireBound(std::move(finding), sum.bound_ns);
}

constexpr Rule kRules[] = {
    {.id = "input-layer-in-loop",
     .question = "Does a loop apply layers to one part of the data at a time?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kHostCode},
     .check = &CheckInputLayerInLoop,
     .reference = "PyTorch documentation, torch.Tensor.unflatten: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.Tensor.unflatten.html",
     .detect =
         "in two thirds of the steps, a layer runs at least 4 times with the "
         "same sizes, each time on a part that is taken out of a larger tensor "
         "and needs no gradient; the backward pass follows the last run and "
         "adds up gradients of the weight, one for each. What follows the "
         "layer in all runs and takes its results alone counts, too",
     .avoid = "gradients are computed after each run, as of micro-batches; or "
              "each run has a weight of its own, as the heads of a model do",
     .fix_cpp = "the layers once for all parts: flatten(0, 1), unflatten",
     .fix_python = "the layers once for all parts: flatten(0, 1), unflatten"}};

}  // namespace
}  // namespace input_layers_rules

extern const std::span<const Rule> kInputLayers = input_layers_rules::kRules;

}  // namespace stepscope
