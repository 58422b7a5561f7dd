// Does a loop apply a layer or a function to the same tensor again and again?
// Sources: loop-invariant code motion (Aho et al., Compilers, section 9.1);
// Bahdanau et al. 2015, appendix A.1.2: U h_j does not depend on the position
// of the decoder, so it is computed in advance.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
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
#include "evidence/program/shortened_ops.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "ops/op_traits.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"
#include "words/quantities.h"

namespace stepscope {
namespace invariants_rules {
namespace {

// Fewer calls may belong to a model that uses a layer twice on purpose.
constexpr size_t kLeastCalls = 3;
constexpr char kChange[] = "layer applied once, before the loop";

// The calls of a layer or function with the same arguments, in one step.
struct Invariant {
  size_t step = 0;
  std::vector<RowId> calls = {};
  std::vector<RowId> nodes = {};
  std::vector<RowId> sums = {};  // of gradients; not needed with one call
  double code_ns = 0;            // the program's code before the calls
  Dims input = {};
  bool proven = true;  // by gradients of the input, which data lack
  bool layer = true;   // false: a function, which has no weight
};

// True for functions of one tensor with the same result each time.
bool IsFunction(std::string_view plain_name) {
  return IsAnyOf(plain_name,
                 {"softmax", "log_softmax", "sigmoid", "log_sigmoid", "tanh",
                  "exp", "log", "log1p", "sqrt", "rsqrt", "erf", "gelu", "silu",
                  "softplus", "sin", "cos", "pow", "cumsum"});
}

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Invariant> Find() {
    std::vector<Invariant> found;
    for (const ForwardStep& step : m_.forward) {
      results_.assign(step.ops.size(), std::nullopt);
      for (const auto& at : RepeatedLayers(m_.trace, step, kLeastCalls)) {
        std::optional<Invariant> one = InvariantOf(step, at);
        if (one) found.push_back(*std::move(one));
      }
      for (const auto& [inputs, at] : RepeatedFunctions(step)) {
        if (at.size() < kLeastCalls) continue;
        std::optional<Invariant> one = FunctionOf(step, at);
        if (one) found.push_back(*std::move(one));
      }
    }
    return found;
  }

 private:
  // The ops from the first to the last call of a layer.
  struct Between {
    size_t uses = 0;                  // ops on a tensor of its input's size
    bool makes = false;               // an op makes another such tensor
    bool unread = false;              // a call may be its first reader
    std::vector<RowId> readers = {};  // first ops that take such a tensor
  };
  Between BetweenCalls(const ForwardStep& step, const std::vector<size_t>& at,
                       int64_t elements) {
    Between between;
    int64_t left = 0;  // tensors that nothing has taken yet
    // The same, but also counting ops with unknown results that take such a
    // tensor.
    int64_t may_be_left = 0;
    bool may_be_unread = false;
    for (size_t i = at.front(); i <= at.back(); ++i) {
      const RowId row = step.ops[i];
      if (m_.tree.traits(row).bookkeeping) continue;
      const bool calls = std::ranges::binary_search(at, i);
      between.unread |= calls && left > 0;
      may_be_unread |= calls && may_be_left > 0;
      if (i == at.back()) break;
      const int64_t taken = TensorsOfSize(m_.trace, row, elements);
      between.uses += taken > 0;
      if (!calls) {
        if (taken > 0 && left > 0) between.readers.push_back(row);
        left = std::max<int64_t>(0, left - taken);
        may_be_left = std::max<int64_t>(0, may_be_left - taken);
      }
      const std::optional<int64_t> made = ResultElements(step, i);
      if (made == elements) {
        ++left;
        between.makes = true;
      }
      may_be_left += made ? *made == elements : taken > 0;
    }
    between.unread |= between.makes && may_be_unread;
    return between;
  }

  // Returns the number of elements that step.ops[i] makes; nullopt if unknown.
  std::optional<int64_t> ResultElements(const ForwardStep& step, size_t i) {
    std::optional<std::optional<int64_t>>& known = results_[i];
    if (!known) {
      const std::optional<Dims> made = ResultDims(m_.trace, step.ops[i]);
      known.emplace(made ? std::optional(ElementsIn(*made)) : std::nullopt);
    }
    return *known;
  }

  // Returns the layer that step.ops[at...] call, if no call may take a tensor
  // made since the previous call, and the engine adds up gradients of the same
  // input and of the same weight.
  std::optional<Invariant> InvariantOf(const ForwardStep& step,
                                       const std::vector<size_t>& at) {
    Invariant one{.step = step.step};
    const RowId call = step.ops[at.front()];
    const size_t weight = WeightArgument(m_.trace, call);
    one.input = DimsOf(m_.trace, call, weight - 1);
    const int64_t elements = ElementsIn(one.input);
    const int64_t weights = ElementsIn(DimsOf(m_.trace, call, weight));
    // Sums for the input and for the weight are told apart by their sizes.
    if (elements == weights) return {};
    const Between between = BetweenCalls(step, at, elements);
    if (between.unread) return {};
    for (size_t i : at) {
      const RowId row = step.ops[i];
      one.calls.push_back(row);
      if (i > 0) one.code_ns += CodeNs(m_.trace, step.ops[i - 1], row);
    }
    if (!AddGradients(elements, weights, between, one)) return {};
    if (!one.proven && MayDiffer(step, at, one.input)) return {};
    return one;
  }

  // Returns the indices of calls of functions, by arguments and name.
  std::map<std::pair<RowId, NameId>, std::vector<size_t>> RepeatedFunctions(
      const ForwardStep& step) const {
    std::map<std::pair<RowId, NameId>, std::vector<size_t>> calls;
    for (size_t i = 0; i < step.ops.size(); ++i) {
      const Op& op = m_.trace.ops()[step.ops[i]];
      if (op.inputs != kNone && TakesOneTensor(op) &&
          IsFunction(PlainNameOf(m_.trace, step.ops[i])) &&
          !IsInPlace(m_.trace, step.ops[i])) {
        calls[{op.inputs, op.name}].push_back(i);
      }
    }
    return calls;
  }

  // Other arguments are numbers. They were recorded and are the same in all
  // calls.
  bool TakesOneTensor(const Op& op) const {
    const auto& arguments = m_.trace.op_inputs()[op.inputs].arguments;
    return !arguments.empty() && !arguments.front().dims.empty() &&
           std::ranges::all_of(
               arguments.begin() + 1, arguments.end(),
               [&](const Argument& one) {
                 return one.dims.empty() &&
                        IsAnyOf(m_.trace.name(one.type),
                                {"", "Scalar", "ScalarList", "bool"});
               });
  }

  // Returns the function that step.ops[at...] call, if nothing else between the
  // calls makes a tensor as large, and the engine adds up one gradient of its
  // input per call.
  std::optional<Invariant> FunctionOf(const ForwardStep& step,
                                      const std::vector<size_t>& at) {
    Invariant one{.step = step.step, .layer = false};
    one.input = DimsOf(m_.trace, step.ops[at.front()], 0);
    const int64_t elements = ElementsIn(one.input);
    for (size_t i = at.front(); i < at.back(); ++i) {
      const RowId row = step.ops[i];
      if (m_.tree.traits(row).bookkeeping ||
          std::ranges::binary_search(at, i)) {
        continue;
      }
      if (MayMake(m_.trace, row, one.input)) return {};
    }
    if (!gradients_) gradients_.emplace(m_);
    for (size_t i : at) one.calls.push_back(step.ops[i]);
    one.nodes = gradients_->NodesBehind(one.calls);
    if (one.nodes.size() < at.size()) return {};
    const auto [first, last] = std::ranges::minmax(one.nodes);
    // These sums remain: they then add gradients of the result.
    const size_t sums = gradients_->SumsAmong(first, last, elements).size();
    return sums + 1 >= at.size() ? std::optional(one) : std::nullopt;
  }

  // True if the step may have several tensors of the size of the input: it
  // splits a tensor, such as a sequence, or makes one after the first call.
  bool MayDiffer(const ForwardStep& step, const std::vector<size_t>& at,
                 const Dims& input) const {
    for (size_t i = 0; i < at.back(); ++i) {
      if (std::ranges::binary_search(at, i)) continue;
      const RowId row = step.ops[i];
      if (MayMake(m_.trace, row, input) &&
          (i > at.front() || TakesApart(m_.trace, row))) {
        return true;
      }
    }
    return false;
  }

  // Adds the sums of gradients. Returns false unless they show that the calls
  // share input and weight.
  bool AddGradients(int64_t elements, int64_t weights, const Between& between,
                    Invariant& one) {
    if (!gradients_) gradients_.emplace(m_);
    one.nodes = gradients_->NodesBehind(one.calls);
    if (one.nodes.empty()) return false;
    const auto [first, last] = std::ranges::minmax(one.nodes);
    const size_t more = one.calls.size() - 1;
    std::vector<RowId> of_weight = gradients_->SumsAmong(first, last, weights);
    if (2 * of_weight.size() <= more) return false;
    // Not all calls have a backward pass: the program may drop a result.
    one.proven = std::ranges::any_of(one.calls, [&](RowId call) {
      return gradients_->MakesInputGradient(call);
    });
    if (!one.proven) {
      one.sums = std::move(of_weight);
      return true;
    }
    std::vector<RowId> of_input = gradients_->SumsAmong(first, last, elements);
    if (between.makes) {
      // For each tensor, the engine adds gradients after the nodes of all ops
      // that took it, except the last op. So if a call took a tensor made in
      // between, a sum also shows after the node of that tensor's first reader.
      const auto adds = [&](RowId row) {
        return std::ranges::any_of(gradients_->NodesOf(row), [&](RowId node) {
          return !gradients_->SumsAmong(node, node, elements).empty();
        });
      };
      if (std::ranges::any_of(between.readers, adds)) return false;
      const auto behind =
          static_cast<size_t>(std::ranges::count_if(one.calls, adds));
      if (behind < more) return false;
    } else if (between.uses < more || 2 * between.uses > more * more ||
               2 * of_input.size() <= 2 * between.uses - more) {
      // A shared input has one sum per further use. Separate inputs have one
      // sum less per call. With many uses, the difference is not clear.
      return false;
    }
    one.sums = std::move(of_weight);
    of_input.resize(std::min(of_input.size(), more));
    one.sums.insert(one.sums.end(), of_input.begin(), of_input.end());
    return true;
  }

  const AnalysisContext& m_;
  std::optional<LayerGradients> gradients_;  // made when first needed
  // ResultElements() of the ops of the current step, because the loops of
  // several layers contain the same ops.
  std::vector<std::optional<std::optional<int64_t>>> results_;
};

Verdict CheckInvariantInLoop(const AnalysisContext& m) {
  const std::vector<Invariant> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  double code_ns = 0, calls = 0;
  for (const Invariant& one : found) {
    const auto count = static_cast<double>(one.calls.size());
    const double left = 1 / count;
    for (RowId row : one.calls) ops.push_back({row, left});
    for (RowId row : one.nodes) ops.push_back({row, left});
    for (RowId row : one.sums) ops.push_back({row, 0});
    code_ns += one.code_ns * (1 - left);
    calls += count;
  }
  const double steps = static_cast<double>(m.steps.steady.size());
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Invariant& longest = *std::ranges::max_element(
      found, {}, [](const Invariant& one) { return one.calls.size(); });
  Finding finding = FindingAbout(m, longest.calls.front(), longest.calls.back(),
                                 "the first to the last call of the layer");
  if (!longest.proven) finding.confidence = Confidence::kHint;
  finding.evidence =
      std::string(m.trace.name(m.trace.ops()[longest.calls.front()].name)) +
      " runs " + MeanCount(calls / steps, "time") + " per step " +
      (longest.layer ? "with the same weight " : "") +
      "on the same tensor of " + InBrackets(longest.input) +
      ": no other one of its size is left for the next run, and the backward "
      "pass adds up gradients of " +
      (!longest.layer   ? "the tensor"
       : longest.proven ? "both"
                        : "the weight (the tensor needs none)") +
      ", one for each call. With the backward passes this takes " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  if (longest.layer) {
    finding.assumption = "at best: one call remains, and none of these sums";
    finding.fix_python =
        "apply the layer once, before the loop, and use its result in the "
        "loop: keys = self.to_key(memory)";
    finding.fix_cpp =
        "apply the layer once, before the loop, and use its result in the "
        "loop: auto keys = to_key(memory)";
    finding.wrong_if =
        "the tensor is changed in place between the calls, or the layer is "
        "random, as with dropout inside";
  } else {
    finding.assumption = "at best: one call remains";
    finding.fix_python =
        "call it once, before the loop, and use its result in the loop: "
        "probabilities = logits.softmax(1)";
    finding.fix_cpp =
        "call it once, before the loop, and use its result in the loop: auto "
        "probabilities = logits.softmax(1)";
    finding.wrong_if = "the tensor is changed in place between the calls";
  }
  if (!longest.proven) {
    finding.wrong_if +=
        "; or a loader delivers several tensors of that size, as for triplets";
  }
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = all.saved_ns + code_ns / steps,
                    .trials = {all.edit},
                    .at_most = longest.proven ? FindingSeverity::kCritical
                                              : FindingSeverity::kLow});
}

constexpr Rule kRules[] = {
    {.id = "invariant-in-loop",
     .question = "Does a loop apply a layer or a function to the same tensor "
                 "again and again?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckInvariantInLoop,
     .reference =
         "Bahdanau, Cho and Bengio 2015, Neural Machine Translation by "
         "Jointly Learning to Align and Translate, appendix A.1.2: "
         "https://arxiv.org/abs/1409.0473",
     .detect =
         "in two thirds of the steps, a linear layer or a convolution runs at "
         "least three times with the same sizes, no op between the runs makes "
         "a tensor as large as its input, and the backward pass adds up a "
         "gradient of the weight and one of the input for each further run "
         "(of an input without gradient, which is a hint and low at most, "
         "those "
         "of the weight only), or a function of one tensor such as softmax "
         "does, and the backward pass adds up a gradient of its input for each "
         "further run; the runs beyond the first take 1 % of the step",
     .avoid =
         "the input needs no gradient, and the step takes parts of such sizes "
         "from a larger tensor; each run has an input or a weight of its own, "
         "as the steps of a sequence and the heads of a model do",
     .fix_cpp = "the layer or function once, before the loop",
     .fix_python = "the layer or function once, before the loop"}};

}  // namespace
}  // namespace invariants_rules

extern const std::span<const Rule> kInvariants = invariants_rules::kRules;

}  // namespace stepscope
