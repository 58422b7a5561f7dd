#include "evidence/gradients/unused_results.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "evidence/gradients/backward_passes.h"
#include "evidence/gradients/parameter_updates.h"
#include "evidence/program/op_shapes.h"
#include "ops/op_traits.h"

namespace stepscope {
namespace {

class ResultsFinder {
 public:
  explicit ResultsFinder(const AnalysisContext& context) : m_(context) {}

  UnusedResults Find() {
    const BackwardPasses all = FindBackwardPasses(m_);
    // Only a pass that stores no gradients hands them back to the program.
    if (!all.sizes_known || all.nested ||
        std::ranges::all_of(all.passes, Keeps)) {
      return {};
    }
    // If optimizers update more parameters of a size in a step than there are
    // stored gradients of that size, the program itself assigns some of the
    // returned gradients (p.grad = g).
    const ParameterUpdates updates = FindParameterUpdates(m_);
    if (!updates.all_known) return {};
    std::map<Dims, std::map<size_t, double>> kept;  // by size and step
    for (const BackwardPass& pass : all.passes) {
      for (const PassNode& node : pass.nodes) {
        for (const StoredGradient& one : node.kept) {
          ++kept[one.gradient.dims][pass.step];
        }
      }
    }
    for (const auto& [dims, steps] : kept) {
      double most = 0;
      for (const auto& [step, count] : steps) most = std::max(most, count);
      if (CountOfSize(updates.stepped, dims) <= most) trained_.insert(dims);
    }
    size_t passes = 0;
    for (size_t i = 0; i < all.passes.size(); ++i) {
      const BackwardPass& pass = all.passes[i];
      if (!std::ranges::binary_search(m_.steps.steady, pass.step) ||
          Keeps(pass)) {
        continue;
      }
      // After the next pass that stores gradients starts, tensors of these
      // sizes may belong to that pass.
      size_t next = i + 1;
      while (next < all.passes.size() && !Keeps(all.passes[next])) ++next;
      const int64_t until_ns =
          next < all.passes.size()
              ? m_.trace.ops()[all.passes[next].nodes.front().row].begin_ns
              : INT64_MAX;
      passes += Add(pass, until_ns);
    }
    if (passes > 0) found_.unread /= static_cast<double>(passes);
    return std::move(found_);
  }

 private:
  static bool Keeps(const BackwardPass& pass) {
    return std::ranges::any_of(
        pass.nodes, [](const PassNode& node) { return !node.kept.empty(); });
  }

  // A matrix product that computes the gradient of a trained weight.
  struct OfWeight {
    RowId row = kNone;
    Dims dims = {};
  };
  std::optional<OfWeight> GradientIn(const PassNode& node) const {
    for (RowId row : m_.tree.inside(node.row)) {
      if (!m_.tree.traits(row).matmul || !m_.tree.computes(row)) continue;
      const std::optional<Dims> made = ResultDims(m_.trace, row);
      if (!made || made->size() != 2) continue;
      // A linear layer may compute the gradient of its weight or the transpose
      // of that gradient.
      const Dims turned = {(*made)[1], (*made)[0]};
      if (trained_.contains(*made)) return OfWeight{row, *made};
      if (trained_.contains(turned)) return OfWeight{row, turned};
    }
    return {};
  }

  // Returns the sizes of the tensors that ops take after the pass; nullopt if
  // one of them takes a list of tensors that was recorded without sizes.
  std::optional<std::set<Dims>> SizesRead(const BackwardPass& pass,
                                          int64_t until_ns) const {
    std::set<Dims> sizes;
    const int64_t end_ns = m_.trace.ops()[pass.nodes.back().row].end_ns;
    for (RowId row : m_.tree.of_thread(m_.steps.thread, {end_ns, until_ns})) {
      const Op& op = m_.trace.ops()[row];
      if (m_.tree.in_backward(row) || op.inputs == kNone) continue;
      if (TakesCutList(m_.trace, row)) return {};
      const auto add = [&](const Argument& tensor) {
        if (!tensor.dims.empty()) sizes.insert(tensor.dims);
      };
      for (const Argument& one : m_.trace.op_inputs()[op.inputs].arguments) {
        add(one);
        std::ranges::for_each(one.elements, add);
      }
    }
    return sizes;
  }

  // True if ops after the pass may take the gradient of the model's input. It
  // is computed in `tail`, the nodes after the last gradient of a weight that
  // is read.
  bool ReadsInput(std::span<const PassNode> tail,
                  const std::set<Dims>& read) const {
    return std::ranges::any_of(tail, [&](const PassNode& node) {
      return std::ranges::any_of(m_.tree.inside(node.row), [&](RowId row) {
        if (!m_.tree.computes(row)) return false;
        const std::optional<Dims> made = ResultDims(m_.trace, row);
        const Dims& taken = DimsOf(m_.trace, row, 1);
        return (made && read.contains(*made) && !trained_.contains(*made)) ||
               (taken.size() > 2 && read.contains(taken));
      });
    });
  }

  // Returns true if the pass computes gradients that are not read.
  bool Add(const BackwardPass& pass, int64_t until_ns) {
    const std::optional<std::set<Dims>> read = SizesRead(pass, until_ns);
    // A list without sizes may hold any of the gradients, so none is known to
    // be unread.
    if (!read) return false;
    size_t tail = 0;  // the node after the last gradient that is read
    double unread = 0;
    std::vector<ShortenedOp> ops;
    std::set<Dims> used;
    for (size_t i = 0; i < pass.nodes.size(); ++i) {
      const std::optional<OfWeight> one = GradientIn(pass.nodes[i]);
      if (!one) continue;
      const Dims turned = {one->dims[1], one->dims[0]};
      if (read->contains(one->dims) || read->contains(turned)) {
        tail = i + 1;
        used.insert(one->dims);
      } else {
        ops.push_back({one->row, 0});
        ++unread;
      }
    }
    if (used.empty() || unread == 0) return false;
    const std::span<const PassNode> rest = std::span(pass.nodes).subspan(tail);
    if (!ReadsInput(rest, *read)) {
      for (const PassNode& node : rest) ops.push_back({node.row, 0});
    }
    found_.ops.insert(found_.ops.end(), ops.begin(), ops.end());
    found_.steps.push_back(pass.step);
    found_.unread += unread;
    found_.read.assign(used.begin(), used.end());
    if (found_.first == kNone) found_.first = pass.nodes.front().row;
    return true;
  }

  const AnalysisContext& m_;
  std::set<Dims> trained_;
  UnusedResults found_;
};

}  // namespace

UnusedResults FindUnusedResults(const AnalysisContext& context) {
  if (context.steps.thread == kNone) return {};
  return ResultsFinder(context).Find();
}

}  // namespace stepscope
