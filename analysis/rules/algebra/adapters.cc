// Is a low-rank adapter merged into its weight in each step, or not merged
// where the model only runs? Source: Hu et al. 2021, LoRA: Low-Rank Adaptation
// of Large Language Models, section 4.1. Training computes h = W x + B A x;
// adding B A to W once is meant for inference.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/gradient_passes.h"
#include "evidence/gradients/layer_calls.h"
#include "evidence/kernel_evidence.h"
#include "evidence/program/op_shapes.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace adapters_rules {
namespace {

// The most operations that the thin products may take, as a share of one
// product with the weight. Thin products run at a lower rate.
constexpr double kMostLeft = 0.25;
constexpr char kChange[] = "adapters as two thin products";

// A product of two thin matrices, the weight that it is added to, and the layer
// that takes the sum, in one step.
struct Merged {
  size_t step = 0;
  RowId product = kNone, layer = kNone;
  std::vector<RowId> sums = {};  // elementwise ops up to the layer
  Dims weight = {};
  int64_t rank = 0;
  double left = 0;  // operations of thin products / operations of the layer
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Merged> Find() {
    return FindAtOps(m_.forward, [&](std::span<const RowId> ops, size_t i) {
      return At(ops, i);
    });
  }

  // Returns the product inside the layer's node that computes the gradient of
  // the merged weight; kNone if unknown.
  RowId WeightGradientOf(const Merged& one) const {
    for (RowId node : NodesOf(one.layer)) {
      for (RowId row : m_.tree.inside(node)) {
        const std::optional<Dims> made = ResultDims(m_.trace, row);
        if (IsAnyOf(PlainNameOf(m_.trace, row), {"mm", "bmm"}) && made &&
            HasSizes(*made, one.weight)) {
          return row;
        }
      }
    }
    return kNone;
  }

 private:
  // True if the sizes are equal, or equal when transposed.
  static bool HasSizes(const Dims& dims, const Dims& weight) {
    return dims == weight ||
           std::equal(dims.begin(), dims.end(), weight.rbegin(), weight.rend());
  }

  std::vector<RowId> NodesOf(RowId row) const {
    return m_.backward.Of(m_.trace.ops()[row]);
  }

  std::optional<Merged> At(std::span<const RowId> ops, size_t i) {
    Merged one{.product = ops[i]};
    if (!MultipliesThin(one) || NodesOf(one.product).empty()) return {};
    bool added = false;
    for (++i; i < ops.size(); ++i) {
      const RowId row = ops[i];
      if (m_.tree.traits(row).bookkeeping) continue;
      const size_t at = WeightArgument(m_.trace, row);
      if (at > 0 && added && HasSizes(DimsOf(m_.trace, row, at), one.weight)) {
        one.layer = row;
        break;
      }
      const std::optional<Dims> made = ResultDims(m_.trace, row);
      if (!TakesDims(m_.trace, row, one.weight)) {
        if (made == one.weight) return {};  // the next adapter
        continue;
      }
      if (made != one.weight || !IsElementwise(PlainNameOf(m_.trace, row))) {
        return {};
      }
      added |= TakesTwo(m_.trace, row, one.weight);
      one.sums.push_back(row);
    }
    // A trained weight needs the whole gradient anyway.
    if (one.layer == kNone || Trains(one)) return {};
    return one;
  }

  // True for [n, r] times [r, m] with r so small that both matrices are thin.
  bool MultipliesThin(Merged& one) const {
    if (!IsAnyOf(PlainNameOf(m_.trace, one.product), {"mm", "matmul"})) {
      return false;
    }
    const Dims& a = DimsOf(m_.trace, one.product, 0);
    const Dims& b = DimsOf(m_.trace, one.product, 1);
    if (a.size() != 2 || b.size() != 2 || a[1] != b[0] || a[1] <= 0) {
      return false;
    }
    one.weight = {a[0], b[1]};
    one.rank = a[1];
    one.left = static_cast<double>(one.rank) *
               static_cast<double>(a[0] + b[1]) /
               static_cast<double>(ElementsIn(one.weight));
    // Per row, the two thin products take rank * (n + m) multiplications, and
    // the product with the weight takes n * m.
    return one.left <= kMostLeft;
  }

  // True if backward stores a gradient of the weight that the product is added
  // to.
  bool Trains(const Merged& one) {
    std::vector<RowId> nodes;
    for (RowId row : one.sums) {
      const std::vector<RowId> of_sum = NodesOf(row);
      nodes.insert(nodes.end(), of_sum.begin(), of_sum.end());
    }
    if (nodes.empty()) return true;
    if (!gradients_) gradients_.emplace(m_);
    const auto [first, last] = std::ranges::minmax(nodes);
    return gradients_->KeptAmong(first, last, one.weight) > 0;
  }

  const AnalysisContext& m_;
  std::optional<LayerGradients> gradients_;  // made when first needed
};

Verdict CheckMergedAdapter(const AnalysisContext& m) {
  Finder finder(m);
  const std::vector<Merged> found = finder.Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  for (const Merged& one : found) {
    AppendWithNodes(m, one.product, 0, ops);
    for (RowId row : one.sums) AppendWithNodes(m, row, 0, ops);
    const RowId gradient = finder.WeightGradientOf(one);
    // Thin products replace it: one set forward, and twice as many backward.
    if (gradient != kNone) {
      ops.push_back({gradient, std::min(1.0, 3 * one.left)});
    }
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Merged& largest = *std::ranges::max_element(
      found, {}, [](const Merged& one) { return ElementsIn(one.weight); });
  Finding finding = FindingAbout(m, largest.product, largest.layer,
                                 "from the product to the layer");
  finding.evidence =
      "Products of thin matrices, of rank " + std::to_string(largest.rank) +
      " for example, make matrices as large as a weight (" +
      InBrackets(largest.weight) +
      "), which are added to weights that are not trained, " +
      MeanCount(static_cast<double>(found.size()) /
                    static_cast<double>(m.steps.steady.size()),
                "time") +
      " per step. The backward pass makes a gradient of the whole sum. This "
      "takes " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: thin products take as many operations less, and adding their "
      "results nothing";
  finding.fix_python =
      "apply the adapter beside the layer: base(x) + scale * F.linear("
      "F.linear(x, A), B) in place of F.linear(x, W + scale * B @ A); merge "
      "them for inference only";
  finding.fix_cpp =
      "apply the adapter beside the layer: base(x) + scale * "
      "torch::linear(torch::linear(x, A), B)";
  finding.wrong_if =
      "many more rows pass through the layer than it has inputs and outputs, "
      "so that thin products take longer; or the sum is used elsewhere";
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

// A layer beside which two thin products of an adapter run, in one step.
struct Beside {
  size_t step = 0;
  RowId layer = kNone;
  std::vector<RowId> ops = {};  // from the first thin product to the sum
  Dims weight = {};
  int64_t rank = 0;
};

// The most time that two thin products may take, as a share of the layer's.
// They take a quarter of the operations or less, at a lower rate.
constexpr double kMostThinNs = 0.5;
// The most ops of an adapter: casts, dropout, two products, scaling, the sum.
// Our own choice.
constexpr size_t kLongest = 16;

// Appends the ops of the adapters of a layer to `one`. Its first adapter may
// begin at ops[i], the next one where that ends. `find(i)` returns the part of
// `ops` that an adapter takes; empty if none begins there.
template <typename Find>
void AppendAdapters(std::span<const RowId> ops, size_t i, Beside& one,
                    Find find) {
  while (i < ops.size()) {
    const std::span<const RowId> adapter = find(i);
    if (adapter.empty()) return;
    one.ops.insert(one.ops.end(), adapter.begin(), adapter.end());
    i = static_cast<size_t>(adapter.data() + adapter.size() - ops.data());
  }
}

// Finds layers followed by a product with a weight [rank, inputs], one with a
// weight [outputs, rank], and a sum as large as their result.
class BesideFinder {
 public:
  explicit BesideFinder(const AnalysisContext& context) : m_(context) {}

  std::vector<Beside> Find() {
    return FindAtOps(m_.forward, [&](std::span<const RowId> ops, size_t i) {
      return At(ops, i);
    });
  }

 private:
  // The weight of a linear layer; empty for other ops.
  const Dims& LayerOf(RowId row) const {
    // Never destroyed, because other static objects may use it at program exit.
    static const auto& kNoDims = *new Dims;
    const size_t at = WeightArgument(m_.trace, row);
    if (at == 0) return kNoDims;
    const Dims& weight = DimsOf(m_.trace, row, at);
    return weight.size() == 2 ? weight : kNoDims;
  }

  std::optional<Beside> At(std::span<const RowId> ops, size_t i) const {
    Beside one{.layer = ops[i], .weight = LayerOf(ops[i])};
    const std::optional<Dims> made = ResultDims(m_.trace, one.layer);
    if (one.weight.empty() || !made) return {};
    AppendAdapters(ops, i + 1, one, [&](size_t next) {
      return AdapterAt(ops, next, *made, one);
    });
    if (one.ops.empty()) return {};
    return one;
  }

  // Returns the ops of the adapter at ops[i], from its first product to the
  // sum, and sets the rank of `one`; empty if there is none.
  std::span<const RowId> AdapterAt(std::span<const RowId> ops, size_t i,
                                   const Dims& made, Beside& one) const {
    Dims next = {};         // the weight of the second thin product
    bool expanded = false;  // the second thin product was there
    size_t first = i;
    for (size_t k = i; k < std::min(ops.size(), i + kLongest); ++k) {
      const RowId row = ops[k];
      const Dims& weight = LayerOf(row);
      if (!weight.empty() && next.empty()) {
        // [rank, inputs] of the same input.
        if (!IsThin(weight, one.weight) ||
            DimsOf(m_.trace, row, 0) != DimsOf(m_.trace, one.layer, 0)) {
          return {};
        }
        one.rank = weight[0];
        next = {one.weight[0], one.rank};
        first = k;
      } else if (!weight.empty()) {
        if (weight != next) return {};
      }
      if (next.empty()) continue;
      // Between the products there is nothing but dropout and casts. With an
      // activation there, the two cannot be merged into one weight.
      const std::string_view name = PlainNameOf(m_.trace, row);
      if (weight.empty() && !expanded && !m_.tree.traits(row).bookkeeping &&
          !IsAnyOf(name, {"to", "_to_copy", "dropout", "mul"})) {
        return {};
      }
      expanded |= weight == next && k > first;
      if (name.starts_with("add") && TakesTwo(m_.trace, row, made)) {
        return ops.subspan(first, k + 1 - first);
      }
    }
    return {};
  }

  static bool IsThin(const Dims& thin, const Dims& weight) {
    return thin[1] == weight[1] &&
           static_cast<double>(thin[0] * (weight[0] + weight[1])) <=
               kMostLeft * static_cast<double>(weight[0] * weight[1]);
  }

  const AnalysisContext& m_;
};

// The same without sizes: a product, two that take less time, a
// multiplication by the scale and a sum. After the sum, two products of another
// adapter of the same layer may follow.
class UnsizedFinder {
 public:
  explicit UnsizedFinder(const AnalysisContext& context)
      : m_(context), device_ns_(DeviceNsByOp(context)) {}

  std::vector<Beside> Find() {
    return FindAtOps(m_.forward, [&](std::span<const RowId> ops, size_t i) {
      return At(ops, i);
    });
  }

 private:
  double NsOf(RowId row) const {
    if (m_.has_gpu) return DeviceNsInside(m_, device_ns_, row);
    const Op& op = m_.trace.ops()[row];
    return static_cast<double>(op.end_ns - op.begin_ns);
  }

  std::optional<Beside> At(std::span<const RowId> ops, size_t i) const {
    if (!IsProduct(PlainNameOf(m_.trace, ops[i]))) return {};
    Beside one{.layer = ops[i]};
    const double layer_ns = NsOf(one.layer);
    AppendAdapters(ops, i + 1, one,
                   [&](size_t next) { return AdapterAt(ops, next, layer_ns); });
    if (one.ops.empty()) return {};
    return one;
  }

  // True for a product without a bias, which adapters do not have. Layers that
  // make a factor and a term of a condition do.
  bool IsThin(RowId row) const {
    return IsProduct(PlainNameOf(m_.trace, row)) &&
           std::ranges::none_of(m_.tree.inside(row), [&](RowId inner) {
             return PlainNameOf(m_.trace, inner) == "addmm";
           });
  }

  // Returns the ops of the adapter at ops[i]; empty if there is none.
  std::span<const RowId> AdapterAt(std::span<const RowId> ops, size_t i,
                                   double layer_ns) const {
    constexpr std::string_view kOrder[] = {"", "", "mul",
                                           "add"};  // "": product
    double ns = 0;
    size_t part = 0;
    for (size_t k = i; k < std::min(ops.size(), i + kLongest); ++k) {
      const std::string_view name = PlainNameOf(m_.trace, ops[k]);
      if (kOrder[part].empty() ? IsThin(ops[k]) : name == kOrder[part]) {
        if (kOrder[part].empty()) ns += NsOf(ops[k]);
        if (++part == std::size(kOrder)) {
          return ns <= kMostThinNs * layer_ns ? ops.subspan(i, k + 1 - i)
                                              : std::span<const RowId>();
        }
      } else if (!m_.tree.traits(ops[k]).bookkeeping &&
                 !IsAnyOf(name, {"to", "_to_copy", "dropout"})) {
        break;
      }
    }
    return {};
  }

  const AnalysisContext& m_;
  std::vector<double> device_ns_;
};

Verdict CheckUnmergedAdapter(const AnalysisContext& m) {
  // Training needs the adapter by itself.
  if (!OnlyInfers(m)) return Clean();
  const bool sized = m.trace.watched(Kind::kOpShapes);
  const std::vector<Beside> found =
      sized ? BesideFinder(m).Find() : UnsizedFinder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  double between_ns = 0;  // own code between the ops
  for (const Beside& one : found) {
    int64_t end_ns = m.trace.ops()[one.layer].end_ns;
    for (RowId row : one.ops) {
      const Op& op = m.trace.ops()[row];
      ops.push_back({row, 0});
      between_ns += static_cast<double>(op.begin_ns - end_ns);
      end_ns = op.end_ns;
    }
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), "adapters merged");
  const Beside& largest = *std::ranges::max_element(
      found, {}, [](const Beside& one) { return ElementsIn(one.weight); });
  Finding finding =
      FindingAbout(m, largest.ops.front(), largest.ops.back(), "an adapter");
  if (!sized) finding.confidence = Confidence::kHint;
  finding.evidence =
      "Adapters run beside their layers in a model that trains nothing: after "
      "a product" +
      (sized ? " with a weight of " + InBrackets(largest.weight) +
                   ", two products of rank " + std::to_string(largest.rank) +
                   " and a sum, "
             : ", two shorter ones, a multiplication by a scale and a sum, ") +
      MeanCount(static_cast<double>(found.size()) /
                    static_cast<double>(m.steps.steady.size()),
                "time") +
      " per step. They take " + Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption = std::string(
                           "at best: without the adapters and the code "
                           "between their ops, the layers take as long as "
                           "now; ") +
                       kSeemsToInfer;
  finding.fix_python =
      "merge the adapters once: model = model.merge_and_unload() (peft), "
      "pipe.fuse_lora() (diffusers)";
  finding.fix_cpp = "add scale * B.matmul(A) to each weight once";
  finding.wrong_if =
      "requests with different adapters share the model, or its weights are "
      "quantised";
  return FireBound(
      std::move(finding),
      all.saved_ns +
          (m.has_gpu ? 0
                     : between_ns / static_cast<double>(m.steps.steady.size())),
      all.edit);
}

constexpr Rule kRules[] = {
    {.id = "merged-adapter",
     .question = "Is a low-rank adapter merged into its weight in each step?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckMergedAdapter,
     .reference = "Hu et al. 2021, LoRA: Low-Rank Adaptation of Large Language "
                  "Models, section 4.1: https://arxiv.org/abs/2106.09685",
     .detect =
         "in two thirds of the steps, a product with a gradient makes a "
         "matrix of two thin ones (with a quarter of the operations of "
         "the layer or fewer), only elementwise ops take it, one of them "
         "with another matrix of its sizes, and a layer takes a weight of "
         "these sizes next; this takes 1 % of the step",
     .avoid = "a gradient of the other matrix is kept, as of a weight that is "
              "trained as well",
     .fix_cpp = "base(x) + linear(linear(x, A), B)",
     .fix_python = "base(x) + F.linear(F.linear(x, A), B)"},
    {.id = "unmerged-adapter",
     .question = "Do low-rank adapters run beside the layers of a model that "
                 "trains nothing?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckUnmergedAdapter,
     .reference = "Hu et al. 2021, LoRA: Low-Rank Adaptation of Large Language "
                  "Models, section 4.1: https://arxiv.org/abs/2106.09685",
     .detect =
         "neither a backward pass nor an update was recorded, and in two "
         "thirds of the steps a layer is followed by a product of its input "
         "with a thin matrix (with a quarter of the layer's operations or "
         "fewer in both products), one with a second thin matrix that makes "
         "as many outputs as the layer, and a sum; without sizes: by two "
         "products that take half as long as the layer's or less, a "
         "multiplication and a sum",
     .avoid = "the model is trained",
     .fix_cpp = "add scale * B A to the weights once",
     .fix_python = "model.merge_and_unload() (peft), pipe.fuse_lora() "
                   "(diffusers)"}};

}  // namespace
}  // namespace adapters_rules

extern const std::span<const Rule> kAdapters = adapters_rules::kRules;

}  // namespace stepscope
