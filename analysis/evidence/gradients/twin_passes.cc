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
#include "evidence/program/forward_steps.h"
#include "ops/contains.h"
#include "ops/loader_spans.h"
#include "ops/op_traits.h"

namespace stepscope {
namespace {

// One layer of some size may be used twice on purpose.
constexpr size_t kLeastLayers = 2;
// More calls are those of a loop over parts of the input.
constexpr size_t kMostCalls = 4;

class Finder {
 public:
  explicit Finder(const AnalysisContext& context)
      : m_(context), loads_(LoaderSpans(m_.trace, m_.steps.thread)) {}

  std::vector<TwinPass> Find() {
    std::vector<TwinPass> found;
    for (const ForwardStep& step : ForwardSteps(m_)) {
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
  const Op& OpAt(RowId row) const { return m_.trace.ops()[row]; }
  bool Same(RowId a, RowId b) const {
    return OpAt(a).name == OpAt(b).name && OpAt(a).inputs == OpAt(b).inputs;
  }

  // The passes that have the same layer as step.ops[i] and step.ops[j]; the
  // second one begins at step.ops[least] or later.
  std::optional<TwinPass> TwinAt(const ForwardStep& step, size_t i, size_t j,
                                 size_t least) {
    const std::vector<RowId>& ops = step.ops;
    // What the passes begin with, such as an embedding.
    while (i > 0 && j > least && j - 1 > i && Same(ops[i - 1], ops[j - 1])) {
      --i;
      --j;
    }
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
    if (one.input.empty() || !KeepSharedLayers(one)) return {};
    if (one.same_input) return one;
    if (InputsMayDiffer(step, i, j, one) || ResultsMeet(step, j, one)) {
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

  // Cuts the passes off in front of the first layer whose weights they do not
  // share: the heads of a model may be of one size. False if too few are left,
  // or the gradients prove that the inputs differ.
  bool KeepSharedLayers(TwinPass& one) {
    if (!gradients_) gradients_.emplace(m_);
    std::vector<RowId> nodes;
    for (const std::vector<RowId>* pass : {&one.first, &one.again}) {
      const size_t before = nodes.size();
      for (RowId row : *pass) {
        const std::vector<RowId> more = gradients_->NodesOf(row);
        nodes.insert(nodes.end(), more.begin(), more.end());
      }
      if (nodes.size() == before) return false;
    }
    const auto [first, last] = std::ranges::minmax(nodes);
    if (OpAt(first).begin_ns < OpAt(one.again.back()).end_ns) return false;
    std::map<int64_t, size_t> used;  // sums, by elements
    size_t kept = 0;
    for (; kept < one.again.size(); ++kept) {
      const RowId row = one.again[kept];
      const size_t weight = WeightArgument(m_.trace, row);
      if (weight == 0) continue;
      const int64_t elements = ElementsIn(DimsOf(m_.trace, row, weight));
      const std::vector<RowId> sums =
          gradients_->SumsAmong(first, last, elements);
      size_t& count = used[elements];
      if (count >= sums.size()) break;
      one.sums.push_back(sums[count++]);
      ++one.layers;
    }
    one.first.resize(kept);
    one.again.resize(kept);
    if (one.layers < kLeastLayers) return false;
    for (RowId row : one.again) {
      const std::vector<RowId> more = gradients_->NodesOf(row);
      one.nodes.insert(one.nodes.end(), more.begin(), more.end());
    }
    if (!NeedsInputGradient(one)) return true;
    const std::vector<RowId> of_input =
        gradients_->SumsAmong(first, last, ElementsIn(one.input));
    one.same_input = !of_input.empty();
    if (one.same_input) one.sums.push_back(of_input.front());
    return one.same_input;
  }

  // True if backward makes gradients of the input of the passes.
  bool NeedsInputGradient(const TwinPass& one) const {
    if (WeightArgument(m_.trace, one.again.front()) == 0) return false;
    for (RowId node : gradients_->NodesOf(one.again.front())) {
      const Op& around = OpAt(node);
      const std::span<const RowId> rows = m_.tree.of_thread(around.thread);
      size_t products = 0;
      for (auto row = std::ranges::lower_bound(
               rows, around.begin_ns, {},
               [&](RowId r) { return OpAt(r).begin_ns; });
           row != rows.end() && OpAt(*row).begin_ns < around.end_ns; ++row) {
        if (const auto of_input = MakesGradient(m_.trace, *row, 0)) {
          return *of_input;
        }
        products +=
            IsAnyOf(m_.trace.name(OpAt(*row).name), {"aten::mm", "aten::bmm"});
      }
      if (products > 1) return true;
    }
    return false;
  }

  // True if an op makes a tensor as large as the input, or takes it from a
  // larger one.
  bool MakesInput(RowId row, const Dims& input) const {
    const std::string_view name = PlainNameOf(m_.trace, row);
    if (MakesSeveral(row) ||
        IsAnyOf(name, {"index", "index_select", "gather", "select", "slice",
                       "narrow", "stack", "cat"})) {
      const Dims& source = DimsOf(m_.trace, row, 0);
      if (source.empty()) return TakesElements(m_.trace, row, RowOf(input));
      return ElementsIn(source) > ElementsIn(input) &&
             ElementsIn(source) % RowOf(input) == 0;
    }
    const std::optional<Dims> made = ResultDims(m_.trace, row);
    if (made) return ElementsIn(*made) == ElementsIn(input);
    return TakesElements(m_.trace, row, ElementsIn(input));
  }

  bool MakesSeveral(RowId row) const {
    return IsAnyOf(PlainNameOf(m_.trace, row),
                   {"unbind", "chunk", "split", "split_with_sizes",
                    "unsafe_chunk", "unsafe_split", "tensor_split"});
  }

  // The elements of one sample.
  static int64_t RowOf(const Dims& input) {
    return ElementsIn({input.begin() + 1, input.end()});
  }

  bool InputsMayDiffer(const ForwardStep& step, size_t i, size_t j,
                       const TwinPass& one) const {
    const Span window = m_.steps.windows[step.step].host;
    const int64_t loads = std::ranges::count_if(loads_, [&](const Span& load) {
      return load.begin_ns >= window.begin_ns && load.begin_ns < window.end_ns;
    });
    if (loads > 1) return true;
    std::set<NameId> makers;
    bool multiplies = false;
    for (size_t k = 0; k < j; ++k) {
      const RowId row = step.ops[k];
      // The pass itself may work on its input, as a normalisation does.
      if (k >= i && k < i + one.first.size()) continue;
      if (MakesInput(row, one.input) &&
          (k > i || multiplies || MakesSeveral(row) ||
           !makers.insert(OpAt(row).name).second)) {
        return true;
      }
      multiplies |= m_.tree.traits(row).matmul;
    }
    return false;
  }

  // True if an op behind the passes takes what both have made.
  bool ResultsMeet(const ForwardStep& step, size_t j,
                   const TwinPass& one) const {
    std::optional<Dims> result;
    for (auto row = one.again.rbegin(); row != one.again.rend() && !result;
         ++row) {
      result = ResultDims(m_.trace, *row);
    }
    if (!result) return true;
    const int64_t elements = ElementsIn(*result);
    for (size_t k = j + one.again.size(); k < step.ops.size(); ++k) {
      const RowId inputs = OpAt(step.ops[k]).inputs;
      if (inputs == kNone) continue;
      int64_t taken = 0;
      const auto add = [&](const Argument& tensor) {
        taken += !tensor.dims.empty() && ElementsIn(tensor.dims) == elements;
      };
      for (const Argument& tensor : m_.trace.op_inputs()[inputs].arguments) {
        add(tensor);
        for (const Argument& element : tensor.elements) add(element);
      }
      if (taken > 1) return true;
    }
    return false;
  }

  const AnalysisContext& m_;
  const std::vector<Span> loads_;
  std::optional<LayerGradients> gradients_;  // made for the first layer
};

}  // namespace

std::vector<TwinPass> FindTwinPasses(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return {};
  return Finder(m).Find();
}

}  // namespace stepscope
