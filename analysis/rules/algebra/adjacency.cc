// Is the same adjacency matrix normalised again in each layer? Source: Kipf and
// Welling, Semi-Supervised Classification with Graph Convolutional Networks,
// section 3.1. They normalise it once, before training.
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
#include "evidence/program/merged_calls.h"
#include "evidence/program/op_shapes.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace adjacency_rules {
namespace {

// Ops on smaller matrices take no longer than calling them, as for diagonal
// matrices.
constexpr int64_t kLeastSize = 32;
constexpr char kChange[] = "adjacency matrix normalised once";

// The ops that make the left operand of a product. They work only on matrices
// of its size and on their rows, and have no gradients.
struct Preparation {
  size_t step = 0;
  std::vector<RowId> ops = {};  // in time order
  double code_ns = 0;           // after each of them
  RowId product = kNone;
  Dims features = {};                              // the right operand
  std::vector<std::pair<NameId, RowId>> key = {};  // names and arguments of ops
};

using Key = std::pair<size_t, std::vector<std::pair<NameId, RowId>>>;

// Returns the preparations that `at` finds in the forward pass, those of equal
// ops in one step together.
template <typename At>
std::map<Key, std::vector<Preparation>> GroupAlike(const AnalysisContext& m,
                                                   At at) {
  std::map<Key, std::vector<Preparation>> alike;
  for (Preparation& one : FindAtOps(m.forward, at)) {
    alike[{one.step, one.key}].push_back(std::move(one));
  }
  return alike;
}

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  // Returns groups of preparations in one step that differ only in the
  // features.
  std::vector<std::vector<Preparation>> Find() const {
    auto alike = GroupAlike(
        m_, [&](std::span<const RowId> ops, size_t i) { return At(ops, i); });
    std::vector<std::vector<Preparation>> found;
    for (auto& [key, all] : alike) {
      std::set<Dims> features;
      for (const Preparation& one : all) features.insert(one.features);
      // If all layers have one width, they may be one layer that is called for
      // graphs of equal size.
      if (features.size() > 1) found.push_back(std::move(all));
    }
    return found;
  }

 private:
  std::optional<Preparation> At(std::span<const RowId> ops, size_t i) const {
    const Dims& matrix = DimsOf(m_.trace, ops[i], 0);
    const Dims& features = DimsOf(m_.trace, ops[i], 1);
    // If both operands have the same size, sizes do not tell which one was
    // prepared.
    if (!IsAnyOf(PlainNameOf(m_.trace, ops[i]), {"mm", "matmul"}) ||
        matrix.size() != 2 || matrix[0] != matrix[1] ||
        matrix[0] < kLeastSize || features.size() < 2 ||
        features.end()[-2] != matrix[0] || features == matrix) {
      return {};
    }
    Preparation one{.product = ops[i], .features = features};
    bool computes = false;
    while (i-- > 0 && Prepares(ops[i], matrix[0])) {
      one.code_ns += CodeNs(m_.trace, ops[i], ops[i + 1]);
      if (m_.tree.traits(ops[i]).bookkeeping) continue;
      one.ops.insert(one.ops.begin(), ops[i]);
      computes |= TakesDims(m_.trace, ops[i], matrix);
    }
    // Ops on rows or numbers alone do not prepare a matrix.
    if (!computes) return {};
    for (RowId row : one.ops) {
      const Op& op = m_.trace.ops()[row];
      one.key.emplace_back(op.name, op.inputs);
    }
    return one;
  }

  // True if the op has no gradient, is not random, and takes only matrices of
  // this size, their rows or columns, and numbers.
  bool Prepares(RowId row, int64_t size) const {
    const Op& op = m_.trace.ops()[row];
    const std::string_view name = PlainNameOf(m_.trace, row);
    if (op.inputs == kNone || Contains(name, "rand") ||
        IsAnyOf(name, {"dropout", "bernoulli", "normal", "uniform"}) ||
        !m_.backward.Of(op).empty()) {
      return false;
    }
    const auto fits = [&](const Argument& one) {
      return std::ranges::all_of(one.dims, [&](int64_t length) {
        return length == size || length == 1;
      });
    };
    return std::ranges::all_of(
        m_.trace.op_inputs()[op.inputs].arguments, [&](const Argument& one) {
          return fits(one) && std::ranges::all_of(one.elements, fits);
        });
  }

  const AnalysisContext& m_;
};

// Finds the same normalisation of a graph that is given as a list of edges: ops
// without gradients that count the edges of each node, take the count to the
// power of -1/2 and multiply it to the edges, as PyG's gcn_norm does.
class EdgeFinder {
 public:
  explicit EdgeFinder(const AnalysisContext& context) : m_(context) {}

  std::vector<std::vector<Preparation>> Find() const {
    auto alike = GroupAlike(
        m_, [&](std::span<const RowId> ops, size_t i) { return At(ops, i); });
    std::vector<std::vector<Preparation>> found;
    for (auto& [key, all] : alike) {
      if (all.size() < 2) continue;
      KeepCommonEnd(all);
      found.push_back(std::move(all));
    }
    return found;
  }

 private:
  // Returns the preparation around a power of the counts, at `i`. `key` holds
  // what follows the counting, because other ops may come before it.
  std::optional<Preparation> At(std::span<const RowId> ops, size_t i) const {
    if (!IsAnyOf(PlainNameOf(m_.trace, ops[i]), {"pow", "rsqrt"}) ||
        DimsOf(m_.trace, ops[i], 0).size() != 1 || !HasNoGradient(ops[i])) {
      return {};
    }
    size_t first = i, counts = i;
    while (first > 0 && HasNoGradient(ops[first - 1])) {
      --first;
      if (counts == i && Counts(ops[first])) counts = first;
    }
    if (counts == i) return {};
    size_t last = i;
    while (last + 1 < ops.size() && HasNoGradient(ops[last + 1])) ++last;
    Preparation one{.product = ops[i]};
    bool multiplies = false;
    for (size_t at = first; at <= last; ++at) {
      if (m_.tree.traits(ops[at]).bookkeeping) continue;
      one.ops.push_back(ops[at]);
      if (at < counts) continue;
      const Op& op = m_.trace.ops()[ops[at]];
      one.key.emplace_back(op.name, op.inputs);
      multiplies |= at > i && PlainNameOf(m_.trace, ops[at]).starts_with("mul");
    }
    return multiplies ? std::optional(one) : std::nullopt;
  }

  bool Counts(RowId row) const {
    return IsAnyOf(PlainNameOf(m_.trace, row),
                   {"scatter_add", "index_add", "scatter_reduce", "bincount"});
  }

  bool HasNoGradient(RowId row) const {
    const Op& op = m_.trace.ops()[row];
    const std::string_view name = PlainNameOf(m_.trace, row);
    return m_.backward.Of(op).empty() && !IsProduct(name) &&
           !Contains(name, "rand") && !Contains(name, "dropout");
  }

  // Keeps only the last ops of each, as far as they are the same in all. Ops
  // before these need not belong to the preparation.
  void KeepCommonEnd(std::vector<Preparation>& all) const {
    size_t common = all.front().ops.size();
    for (const Preparation& one : all) {
      size_t same = 0;
      while (same < std::min(common, one.ops.size())) {
        const Op& a = m_.trace.ops()[all.front().ops.end()[-1 - same]];
        const Op& b = m_.trace.ops()[one.ops.end()[-1 - same]];
        if (a.name != b.name || a.inputs != b.inputs) break;
        ++same;
      }
      common = same;
    }
    for (Preparation& one : all) {
      one.ops.erase(one.ops.begin(), one.ops.end() - common);
    }
  }

  const AnalysisContext& m_;
};

// All preparations that recur, in all steady steps.
struct Repeated {
  std::set<size_t> steps = {};
  std::vector<ShortenedOp> ops = {};  // removed
  double calls = 0, code_ns = 0;
  const Preparation* longest = nullptr;  // the one with the most ops
};

Repeated SumUp(const std::vector<std::vector<Preparation>>& found) {
  Repeated sum;
  for (const std::vector<Preparation>& all : found) {
    sum.steps.insert(all.front().step);
    sum.calls += static_cast<double>(all.size());
    for (const Preparation& one : all) {
      sum.code_ns += one.code_ns;
      for (RowId row : one.ops) sum.ops.push_back({row, 0});
      if (!sum.longest || one.ops.size() > sum.longest->ops.size()) {
        sum.longest = &one;
      }
    }
  }
  return sum;
}

Verdict CheckEdges(const AnalysisContext& m) {
  const std::vector<std::vector<Preparation>> found = EdgeFinder(m).Find();
  Repeated sum = SumUp(found);
  const Preparation* longest = sum.longest;
  if (!longest || longest->ops.empty() ||
      !AreMostSteps(m.steps, sum.steps.size())) {
    return Clean();
  }
  const double count = static_cast<double>(m.steps.steady.size());
  const ShortenedOps all = ShortenOps(m, std::move(sum.ops), kChange);
  Finding finding = FindingAbout(m, longest->ops.front(), longest->ops.back(),
                                 "the normalisation of a graph's edges");
  finding.evidence =
      "The edges of a graph of " +
      Count(DimsOf(m.trace, longest->product, 0).front(), "node") +
      " are normalised by the same " +
      Count(static_cast<int64_t>(longest->ops.size()), "op") + " " +
      MeanCount(sum.calls / count, "time") +
      " per step, with equal arguments and without gradients. This takes " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: the edges are normalised before training, and never again";
  finding.fix_python =
      "normalise once and pass the weights of the edges to all layers: in PyG, "
      "GCNConv(..., cached=True) if the graph never changes, or the transform "
      "GCNNorm() on the data and GCNConv(..., normalize=False)";
  finding.fix_cpp =
      "normalise once, before training or per batch, and pass the weights of "
      "the edges to all layers";
  finding.wrong_if = "each layer has a graph of its own";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = all.saved_ns,
                    .trials = {all.edit}});
}

Verdict CheckRenormalisedAdjacency(const AnalysisContext& m) {
  const std::vector<std::vector<Preparation>> found = Finder(m).Find();
  Repeated sum = SumUp(found);
  const Preparation* longest = sum.longest;
  if (!longest || !AreMostSteps(m.steps, sum.steps.size())) {
    return CheckEdges(m);
  }
  const double count = static_cast<double>(m.steps.steady.size());
  const ShortenedOps all = ShortenOps(m, std::move(sum.ops), kChange);
  const double host_ns = m.has_gpu ? 0 : sum.code_ns / count;
  std::string chain;
  for (RowId row : longest->ops) {
    chain +=
        (chain.empty() ? "" : " > ") + std::string(PlainNameOf(m.trace, row));
  }
  Finding finding =
      FindingAbout(m, longest->ops.front(), longest->ops.back(), chain);
  finding.evidence =
      "A matrix of " + InBrackets(DimsOf(m.trace, longest->product, 0)) +
      " is prepared by the same ops (" + chain + ") " +
      MeanCount(sum.calls / count, "time") +
      " per step, without gradients, each time right before a product with "
      "other features. This takes " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: the matrix is prepared before training, and never again";
  finding.fix_python =
      "prepare the matrix once, before training (adjacency = "
      "normalise(adjacency), or register_buffer), and pass the result to all "
      "layers; if each batch has a graph of its own, once per batch, or in the "
      "dataset";
  finding.fix_cpp =
      "prepare the matrix once, before training (or register_buffer), and pass "
      "the result to all layers; if each batch has a graph of its own, once "
      "per batch, or in the dataset";
  finding.wrong_if = "each layer has a graph of its own";
  return FireBound(std::move(finding), all.saved_ns + host_ns, all.edit);
}

constexpr Rule kRules[] = {
    {.id = "renormalised-adjacency",
     .question = "Is the same adjacency matrix normalised again in each layer?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckRenormalisedAdjacency,
     .reference = "Kipf and Welling, Semi-Supervised Classification with Graph "
                  "Convolutional Networks, section 3.1",
     .detect =
         "in two thirds of the steps, the same ops without gradients, on "
         "tensors of [n, n] and their rows alone, with the same arguments, run "
         "right before two products or more of an [n, n] matrix with features "
         "of different widths. Or ops without gradients that count the edges "
         "of each node, take a power of the counts and multiply run at least "
         "twice with the same arguments",
     .avoid = "all features have one width, as where one layer is called for "
              "several graphs; or the matrix is trained, or n is below 32",
     .fix_cpp = "normalise the matrix once, before training or per batch",
     .fix_python = "normalise the matrix once, before training or per batch"}};

}  // namespace
}  // namespace adjacency_rules

extern const std::span<const Rule> kAdjacency = adjacency_rules::kRules;

}  // namespace stepscope
