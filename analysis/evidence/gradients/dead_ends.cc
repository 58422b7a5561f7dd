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
  DeadEndFinder(const AnalysisContext& context, const StoredOf& stored)
      : m_(context), gradients_(context), stored_(stored) {}

  std::vector<RowId> Find() const {
    std::vector<RowId> found;
    for (const ForwardStep& step : m_.forward) {
      bool trained = false;  // a trained layer ran before
      for (size_t i = 0; i < step.ops.size(); ++i) {
        trained |= Trains(step.ops[i]);
        if (!Begins(step.ops[i]) || MakesWeight(step.ops, i)) continue;
        const size_t last = LastLayer(step.ops, i, trained);
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
    const size_t weight = WeightArgument(m_.trace, layer);
    return stored_.untrained.contains(DimsOf(m_.trace, layer, weight)) ||
           std::ranges::any_of(gradients_.NodesOf(layer), [&](RowId node) {
             return stored_.unread.contains(node);
           });
  }

  bool Begins(RowId op) const {
    return WeightArgument(m_.trace, op) > 0 && IsUntrained(op) && IsDead(op) &&
           !gradients_.NodesOf(op).empty() &&
           !gradients_.MakesInputGradient(op);
  }

  bool Trains(RowId op) const {
    return WeightArgument(m_.trace, op) > 0 && !IsUntrained(op) &&
           !gradients_.NodesOf(op).empty();
  }

  // True if an op of the step may compute the weight of ops[i], for example by
  // adding an adapter to it. The weight's gradient then flows on to other
  // parameters.
  bool MakesWeight(const std::vector<RowId>& ops, size_t i) const {
    const Dims& weight =
        DimsOf(m_.trace, ops[i], WeightArgument(m_.trace, ops[i]));
    return std::any_of(ops.begin(),
                       ops.begin() + static_cast<std::ptrdiff_t>(i),
                       [&](RowId op) {
                         return !gradients_.NodesOf(op).empty() &&
                                ResultDims(m_.trace, op) == weight;
                       });
  }

  // True for an op that takes several tensors and is no layer. One of these
  // tensors may come from a trained layer.
  bool Joins(RowId op) const {
    const RowId inputs = m_.trace.ops()[op].inputs;
    if (inputs == kNone || WeightArgument(m_.trace, op) > 0) return false;
    size_t tensors = 0;
    for (const Argument& one : m_.trace.op_inputs()[inputs].arguments) {
      tensors += one.dims.size() > 1;
      tensors += one.elements.size() > 1 ? 2 : 0;
    }
    return tensors > 1;
  }

  // True if no node of `op` keeps the gradient of a trained parameter.
  bool IsDead(RowId op) const {
    return std::ranges::none_of(gradients_.NodesOf(op), [&](RowId node) {
      return stored_.read.contains(node);
    });
  }

  bool SameSizes(RowId a, RowId b) const {
    const size_t weight = WeightArgument(m_.trace, a);
    return WeightArgument(m_.trace, b) == weight &&
           DimsOf(m_.trace, a, weight) == DimsOf(m_.trace, b, weight) &&
           DimsOf(m_.trace, a, weight - 1) == DimsOf(m_.trace, b, weight - 1);
  }

  // Returns the index of the last layer of the dead end that starts with
  // ops[first]. `trained`: a trained layer ran earlier in the step.
  size_t LastLayer(const std::vector<RowId>& ops, size_t first,
                   bool trained) const {
    size_t last = first;
    for (size_t i = first + 1; i < ops.size() && IsDead(ops[i]); ++i) {
      // After a trained layer, an op that joins tensors may take that layer's
      // result, whose gradient is needed.
      if (trained && Joins(ops[i])) break;
      if (WeightArgument(m_.trace, ops[i]) == 0) continue;
      // A layer with the sizes of the first one starts another pass through the
      // layers. A layer without an input gradient starts another dead end.
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
  const StoredOf& stored_;
};

}  // namespace

std::vector<RowId> FindDeadEnds(const AnalysisContext& m,
                                const StoredOf& stored) {
  return DeadEndFinder(m, stored).Find();
}

}  // namespace stepscope
