#include "evidence/gradients/twin_passes.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "evidence/gradients/layer_calls.h"
#include "evidence/program/op_shapes.h"
#include "ops/contains.h"
#include "ops/loader_spans.h"
#include "ops/op_traits.h"

namespace stepscope {
namespace {

// A program may use a single layer twice on purpose.
constexpr size_t kLeastLayers = 2;
// More calls belong to a loop over parts of the input.
constexpr size_t kMostCalls = 4;

class Finder {
 public:
  explicit Finder(const AnalysisContext& context)
      : m_(context), loads_(LoaderSpans(m_.trace, m_.steps.thread)) {}

  std::vector<TwinPass> Find() {
    std::vector<TwinPass> found;
    for (const ForwardStep& step : m_.forward) {
      size_t end = 0;  // of the last pass that repeats another one
      std::vector<std::vector<size_t>> layers =
          RepeatedLayers(m_.trace, step, 2);
      std::ranges::sort(layers);
      for (const std::vector<size_t>& at : layers) {
        if (at.size() > kMostCalls) continue;
        for (size_t k = 0; k + 1 < at.size(); ++k) {
          if (at[k + 1] < end) continue;
          std::optional<TwinPass> one = TwinAt(step, at[k], at[k + 1], end);
          if (!one) continue;
          end = static_cast<size_t>(
                    std::ranges::find(step.ops, one->again.back()) -
                    step.ops.begin()) +
                1;
          found.push_back(*std::move(one));
        }
      }
    }
    return found;
  }

 private:
  // The first and the last backward node, in order of time.
  struct Nodes {
    RowId first = kNone, last = kNone;
  };

  const Op& OpAt(RowId row) const { return m_.trace.ops()[row]; }
  bool Same(RowId a, RowId b) const {
    return OpAt(a).name == OpAt(b).name && OpAt(a).inputs == OpAt(b).inputs;
  }

  // Returns the two passes in which step.ops[i] and step.ops[j] are the same
  // layer. The second pass starts at step.ops[least] or later.
  std::optional<TwinPass> TwinAt(const ForwardStep& step, size_t i, size_t j,
                                 size_t least) {
    const std::vector<RowId>& ops = step.ops;
    // Extend both passes to the front, for example by an embedding.
    while (i > 0 && j > least && j - 1 > i && Same(ops[i - 1], ops[j - 1])) {
      --i;
      --j;
    }
    if (!tried_.insert(ops[j]).second) return {};
    size_t length = 1;
    while (i + length < j && j + length < ops.size() &&
           Same(ops[i + length], ops[j + length])) {
      ++length;
    }
    TwinPass one{.step = step.step,
                 .first = {ops.begin() + static_cast<ptrdiff_t>(i),
                           ops.begin() + static_cast<ptrdiff_t>(i + length)},
                 .again = {ops.begin() + static_cast<ptrdiff_t>(j),
                           ops.begin() + static_cast<ptrdiff_t>(j + length)}};
    one.input = InputOf(ops[i]);
    if (one.input.empty() || ElementsIn(one.input) <= 0) return {};
    const std::optional<Nodes> nodes = KeepSharedLayers(one);
    if (!nodes || InputsMayDiffer(step, i, j, one) ||
        !CompareInputGradients(*nodes, one) || ResultsMeet(step, j, one)) {
      return {};
    }
    return one;
  }

  Dims InputOf(RowId op) const {
    const size_t weight = WeightArgument(m_.trace, op);
    if (weight > 0) return DimsOf(m_.trace, op, weight - 1);
    return DimsOf(m_.trace, op,
                  PlainNameOf(m_.trace, op) == "embedding" ? 1 : 0);
  }

  const Dims& WeightOf(RowId layer) const {
    return DimsOf(m_.trace, layer, WeightArgument(m_.trace, layer));
  }

  // Ends both passes before the first layer whose weight they do not share,
  // because two heads of a model may have the same sizes. Returns the nodes of
  // the uncut passes; nullopt if too few layers remain.
  std::optional<Nodes> KeepSharedLayers(TwinPass& one) {
    if (!gradients_) gradients_.emplace(m_);
    std::vector<RowId> nodes;
    std::map<Dims, size_t> uses;  // of weights, by size
    for (const std::vector<RowId>* pass : {&one.first, &one.again}) {
      const size_t before = nodes.size();
      for (RowId row : *pass) {
        const std::vector<RowId> more = gradients_->NodesOf(row);
        nodes.insert(nodes.end(), more.begin(), more.end());
        if (WeightArgument(m_.trace, row) > 0) ++uses[WeightOf(row)];
      }
      // A pass without nodes has no gradients to compare.
      if (nodes.size() == before) return {};
    }
    const auto [first, last] = std::ranges::minmax(nodes);
    // If a node runs before the second pass ends, each pass has its own
    // backward pass, as with micro-batches.
    if (OpAt(first).begin_ns < OpAt(one.again.back()).end_ns) return {};
    size_t kept = 0;
    for (; kept < one.again.size(); ++kept) {
      if (WeightArgument(m_.trace, one.again[kept]) == 0) continue;
      const Dims& weight = WeightOf(one.again[kept]);
      const size_t parameters = gradients_->KeptAmong(first, last, weight);
      // A weight that both passes use stores one gradient for two uses. If
      // there are more gradients than that, the passes do not share all weights
      // of the size.
      if (parameters == 0 || 2 * parameters > uses[weight]) break;
      ++one.layers;
    }
    one.first.resize(kept);
    one.again.resize(kept);
    if (one.layers < kLeastLayers) return {};
    for (RowId row : one.again) {
      const std::vector<RowId> more = gradients_->NodesOf(row);
      one.nodes.insert(one.nodes.end(), more.begin(), more.end());
      if (WeightArgument(m_.trace, row) == 0) continue;
      const std::vector<RowId> sums =
          gradients_->SumsAmong(first, last, ElementsIn(WeightOf(row)));
      if (!sums.empty()) one.sums.push_back(sums.front());
    }
    return Nodes{first, last};
  }

  // False if the gradients prove that the inputs differ. Nothing else in the
  // step is as large as the input, so sums of that size add gradients of the
  // input.
  bool CompareInputGradients(const Nodes& nodes, TwinPass& one) const {
    const auto needs = [&](const std::vector<RowId>& pass) {
      const auto layer = std::ranges::find_if(
          pass, [&](RowId row) { return WeightArgument(m_.trace, row) > 0; });
      return gradients_->MakesInputGradient(*layer);
    };
    const bool again = needs(one.again);
    if (again != needs(one.first)) return false;
    if (!again) return true;
    const std::vector<RowId> sums =
        gradients_->SumsAmong(nodes.first, nodes.last, ElementsIn(one.input));
    one.same_input = !sums.empty();
    if (one.same_input) one.sums.push_back(sums.front());
    return one.same_input;
  }

  // True if the two passes may have different inputs. Also sets one.input_made.
  bool InputsMayDiffer(const ForwardStep& step, size_t i, size_t j,
                       TwinPass& one) const {
    const Span window = m_.steps.windows[step.step].host;
    const int64_t loads = std::ranges::count_if(loads_, [&](const Span& load) {
      return load.begin_ns >= window.begin_ns && load.begin_ns < window.end_ns;
    });
    // The second pass may run on the second batch of the step.
    if (loads > 1) return true;
    std::set<NameId> makers;
    bool multiplies = false;
    for (size_t k = 0; k < j; ++k) {
      const RowId row = step.ops[k];
      const bool views = m_.tree.traits(row).bookkeeping;
      // Inside the first pass, views of its input are allowed.
      const bool within = k >= i && k < i + one.first.size();
      const std::optional<Dims> made = ResultDims(m_.trace, row);
      if (within && (k == i || views || !made)) continue;
      if (within ? ElementsIn(*made) == ElementsIn(one.input)
                 : MayMake(m_.trace, row, one.input)) {
        if (k > i || multiplies || TakesApart(m_.trace, row) ||
            !makers.insert(OpAt(row).name).second) {
          return true;
        }
      }
      multiplies |= Multiplies(m_.tree.traits(row).kind);
    }
    one.input_made = makers.size() == 1;
    return false;
  }

  // True if an op after the passes takes the results of both, or if the size of
  // the results is unknown.
  bool ResultsMeet(const ForwardStep& step, size_t j,
                   const TwinPass& one) const {
    const auto last = std::ranges::find_if(
        one.again.rbegin(), one.again.rend(),
        [&](RowId row) { return !m_.tree.traits(row).bookkeeping; });
    const std::optional<Dims> result = ResultDims(m_.trace, *last);
    if (!result) return true;
    const int64_t elements = ElementsIn(*result);
    for (size_t k = j + one.again.size(); k < step.ops.size(); ++k) {
      if (TensorsOfSize(m_.trace, step.ops[k], elements) > 1) return true;
    }
    return false;
  }

  const AnalysisContext& m_;
  const std::vector<Span> loads_;
  std::optional<LayerGradients> gradients_;  // made when first needed
  std::set<RowId> tried_;                    // starts of second passes
};

}  // namespace

std::vector<TwinPass> FindTwinPasses(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return {};
  return Finder(m).Find();
}

}  // namespace stepscope
