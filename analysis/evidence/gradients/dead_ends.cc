#include "evidence/gradients/dead_ends.h"

#include <algorithm>
#include <cstddef>

#include "evidence/gradients/layer_calls.h"
#include "evidence/program/op_shapes.h"
#include "steps/forward_steps.h"

namespace stepscope {
namespace {

class DeadEndFinder {
 public:
  DeadEndFinder(const AnalysisContext& context, const std::set<Dims>& untrained,
                const std::set<RowId>& read)
      : m_(context), gradients_(context), untrained_(untrained), read_(read) {}

  std::vector<RowId> Find() const {
    std::vector<RowId> found;
    for (const ForwardStep& step : m_.forward) {
      for (size_t i = 0; i < step.ops.size(); ++i) {
        if (!Begins(step.ops[i])) continue;
        const size_t last = LastLayer(step.ops, i);
        for (; i <= last; ++i) {
          const std::vector<RowId> nodes = gradients_.NodesOf(step.ops[i]);
          found.insert(found.end(), nodes.begin(), nodes.end());
        }
        i = last;
      }
    }
    return found;
  }

 private:
  bool IsUntrained(RowId layer) const {
    return untrained_.contains(
        DimsOf(m_.trace, layer, WeightArgument(m_.trace, layer)));
  }

  bool Begins(RowId op) const {
    return WeightArgument(m_.trace, op) > 0 && IsUntrained(op) && IsDead(op) &&
           !gradients_.NodesOf(op).empty() &&
           !gradients_.MakesInputGradient(op);
  }

  // True if no node of `op` keeps the gradient of a trained parameter.
  bool IsDead(RowId op) const {
    return std::ranges::none_of(gradients_.NodesOf(op), [&](RowId node) {
      return read_.contains(node);
    });
  }

  bool SameSizes(RowId a, RowId b) const {
    const size_t weight = WeightArgument(m_.trace, a);
    return WeightArgument(m_.trace, b) == weight &&
           DimsOf(m_.trace, a, weight) == DimsOf(m_.trace, b, weight) &&
           DimsOf(m_.trace, a, weight - 1) == DimsOf(m_.trace, b, weight - 1);
  }

  // Of the pass that begins with ops[first].
  size_t LastLayer(const std::vector<RowId>& ops, size_t first) const {
    size_t last = first;
    for (size_t i = first + 1; i < ops.size() && IsDead(ops[i]); ++i) {
      if (WeightArgument(m_.trace, ops[i]) == 0) continue;
      if (!IsUntrained(ops[i]) || SameSizes(ops[i], ops[first]) ||
          !gradients_.MakesInputGradient(ops[i])) {
        break;
      }
      last = i;
    }
    return last;
  }

  const AnalysisContext& m_;
  const LayerGradients gradients_;
  const std::set<Dims>& untrained_;
  const std::set<RowId>& read_;
};

}  // namespace

std::vector<RowId> FindDeadEnds(const AnalysisContext& m,
                                const std::set<Dims>& untrained,
                                const std::set<RowId>& read) {
  return DeadEndFinder(m, untrained, read).Find();
}

}  // namespace stepscope
