// Does a moving average of the weights include weights that are not trained?
// Source: the documentation of torch.optim.swa_utils.AveragedModel: each update
// passes over all parameters of the model.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/program/forward_ops.h"
#include "evidence/program/op_shapes.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace averages_rules {
namespace {

constexpr char kChange[] = "averages of trained weights only";

// The averages of tensors of one size, in one step.
struct Averages {
  size_t count = 0;
  std::vector<RowId> ops = {};
};

// The averages of weights that are not trained, in one step.
struct Frozen {
  size_t step = 0;
  size_t count = 0;  // tensors
  std::vector<ShortenedOp> ops = {};
  Dims largest = {};
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Frozen> Find() {
    std::vector<Frozen> found;
    for (const ForwardStep& step : m_.forward) {
      Frozen one = In(step);
      if (one.count > 0) found.push_back(std::move(one));
    }
    return found;
  }

 private:
  Frozen In(const ForwardStep& step) {
    Frozen one{.step = step.step};
    const std::map<Dims, Averages> averaged = AveragedIn(step.ops);
    if (averaged.empty()) return one;
    if (!trained_) trained_ = ParametersBySize(m_.graph_walks);
    // If no size belongs to a trained weight, the averages may not be of
    // weights at all.
    if (std::ranges::none_of(averaged, [&](const auto& each) {
          return trained_->contains(each.first);
        })) {
      return one;
    }
    for (const auto& [dims, all] : averaged) {
      const auto known = trained_->find(dims);
      const size_t trained = known == trained_->end() ? 0 : known->second;
      // Vectors may be statistics of a normalisation, which change without
      // training.
      if (all.count <= trained || dims.size() < 2 || IsMade(step.ops, dims)) {
        continue;
      }
      const double left =
          static_cast<double>(trained) / static_cast<double>(all.count);
      for (RowId row : all.ops) one.ops.push_back({row, left});
      one.count += all.count - trained;
      if (ElementsIn(dims) > ElementsIn(one.largest) || one.largest.empty()) {
        one.largest = dims;
      }
    }
    return one;
  }

  // Returns, by size, the ops average.mul_(decay).add_(weight, alpha=...) and
  // average.lerp_(weight, ...).
  std::map<Dims, Averages> AveragedIn(std::span<const RowId> ops) const {
    std::map<Dims, Averages> found;
    RowId before = kNone;
    for (RowId row : ops) {
      if (m_.tree.traits(row).bookkeeping) continue;
      const std::string_view name = PlainNameOf(m_.trace, row);
      const Dims& dims = DimsOf(m_.trace, row, 0);
      const bool sums = name == "add" && before != kNone &&
                        PlainNameOf(m_.trace, before) == "mul" &&
                        IsInPlace(m_.trace, before) &&
                        DimsOf(m_.trace, before, 0) == dims &&
                        DimsOf(m_.trace, before, 1).empty();
      // An average of weights has no gradient, unlike a sum inside the model.
      if (!dims.empty() && IsInPlace(m_.trace, row) &&
          TakesTwo(m_.trace, row, dims) && (sums || name == "lerp") &&
          m_.backward.Of(m_.trace.ops()[row]).empty()) {
        Averages& all = found[dims];
        ++all.count;
        if (sums) all.ops.push_back(before);
        all.ops.push_back(row);
      }
      before = row;
    }
    return found;
  }

  // True if the step makes a tensor of this size. That tensor may be what is
  // averaged, such as the codes of a VQ-VAE.
  bool IsMade(std::span<const RowId> ops, const Dims& dims) const {
    return std::ranges::any_of(ops, [&](RowId row) {
      return !IsInPlace(m_.trace, row) && !m_.tree.traits(row).bookkeeping &&
             ResultDims(m_.trace, row) == dims;
    });
  }

  const AnalysisContext& m_;
  // Parameters that get a gradient, counted when the first average is found.
  std::optional<std::map<Dims, size_t>> trained_;
};

Verdict CheckFrozenAverage(const AnalysisContext& m) {
  const std::vector<Frozen> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  for (const Frozen& one : found) {
    ops.insert(ops.end(), one.ops.begin(), one.ops.end());
  }
  const Frozen& first = found.front();
  const RowId from = first.ops.front().op, to = first.ops.back().op;
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  Finding finding =
      FindingAbout(m, std::min(from, to), std::max(from, to), "the averages");
  finding.evidence =
      "A moving average of weights is updated in each step, and " +
      Count(static_cast<int64_t>(first.count), "tensor") + " of it, up to " +
      InBrackets(first.largest) + ", " + (first.count == 1 ? "has" : "have") +
      " the size of no weight that gets a gradient. Averages of such sizes "
      "take " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption = "at best: only trained weights are averaged";
  finding.fix_python =
      "average the parameters that are trained, and share the others: for p in "
      "model.parameters(): if p.requires_grad: ...";
  finding.fix_cpp = "average only parameters with requires_grad()";
  finding.wrong_if =
      "these tensors are changed by other means than gradients, as buffers "
      "are";
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

constexpr Rule kRules[] = {
    {.id = "frozen-average",
     .question = "Does a moving average of the weights include weights that "
                 "are not trained?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckFrozenAverage,
     .reference = "PyTorch documentation, torch.optim.swa_utils: "
                  "https://docs.pytorch.org/docs/stable/optim.html",
     .detect = "in two thirds of the steps, tensors are scaled in place and "
               "others are added to them (or lerp_() does both), outside of "
               "the optimizer; some have the sizes of weights whose gradients "
               "are kept, and more tensors of a size than there are such "
               "weights take 1 % of the step",
     .avoid = "they are vectors, as the statistics of a normalisation are, or "
              "an op of the step makes a tensor of their size, which may be "
              "what is averaged",
     .fix_cpp = "only parameters with requires_grad()",
     .fix_python = "only parameters with requires_grad"}};

}  // namespace
}  // namespace averages_rules

extern const std::span<const Rule> kAverages = averages_rules::kRules;

}  // namespace stepscope
