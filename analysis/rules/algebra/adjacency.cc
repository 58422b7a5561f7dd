// Is the same adjacency matrix normalised again in each layer?
// Source: Kipf and Welling, Semi-Supervised Classification with Graph
// Convolutional Networks, section 3.1, which normalises it before training.
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

// As for diagonal matrices: below, ops take what calling them does.
constexpr int64_t kLeastSize = 32;
constexpr char kChange[] = "adjacency matrix normalised once";

// What makes the left side of a product, from ops on matrices of its size and
// on their rows alone, without gradients.
struct Preparation {
  size_t step = 0;
  std::vector<RowId> ops = {};  // in time order
  double code_ns = 0;           // behind each of them
  RowId product = kNone;
  Dims features = {};                              // the right side
  std::vector<std::pair<NameId, RowId>> key = {};  // names and arguments of ops
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  // Those of each step that are the same but for the features.
  std::vector<std::vector<Preparation>> Find() const {
    using Key = std::pair<size_t, std::vector<std::pair<NameId, RowId>>>;
    std::map<Key, std::vector<Preparation>> alike;
    for (Preparation& one :
         FindAtOps(m_.forward, [&](std::span<const RowId> ops, size_t i) {
           return At(ops, i);
         })) {
      alike[{one.step, one.key}].push_back(std::move(one));
    }
    std::vector<std::vector<Preparation>> found;
    for (auto& [key, all] : alike) {
      std::set<Dims> features;
      for (const Preparation& one : all) features.insert(one.features);
      // Layers of one width may be one layer, called for graphs of one size.
      if (features.size() > 1) found.push_back(std::move(all));
    }
    return found;
  }

 private:
  std::optional<Preparation> At(std::span<const RowId> ops, size_t i) const {
    const Dims& matrix = DimsOf(m_.trace, ops[i], 0);
    const Dims& features = DimsOf(m_.trace, ops[i], 1);
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
    if (!computes) return {};
    for (RowId row : one.ops) {
      const Op& op = m_.trace.ops()[row];
      one.key.emplace_back(op.name, op.inputs);
    }
    return one;
  }

  // True if the op has no gradient, is not random, and takes matrices of this
  // size, their rows or columns, or numbers alone.
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

Verdict CheckRenormalisedAdjacency(const AnalysisContext& m) {
  const std::vector<std::vector<Preparation>> found = Finder(m).Find();
  std::set<size_t> steps;
  std::vector<ShortenedOp> ops;
  double calls = 0, code_ns = 0;
  const Preparation* longest = nullptr;
  for (const std::vector<Preparation>& all : found) {
    steps.insert(all.front().step);
    calls += static_cast<double>(all.size());
    for (const Preparation& one : all) {
      code_ns += one.code_ns;
      for (RowId row : one.ops) ops.push_back({row, 0});
      if (!longest || one.ops.size() > longest->ops.size()) longest = &one;
    }
  }
  if (!longest || !AreMostSteps(m.steps, steps.size())) return Clean();
  const double count = static_cast<double>(m.steps.steady.size());
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const double host_ns = m.has_gpu ? 0 : code_ns / count;
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
      MeanCount(calls / count, "time") +
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
  return FireBound(std::move(finding), all.saved_ns + host_ns);
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
         "of different widths",
     .avoid = "all features have one width, as where one layer is called for "
              "several graphs; or the matrix is trained, or n is below 32",
     .fix_cpp = "normalise the matrix once, before training or per batch",
     .fix_python = "normalise the matrix once, before training or per batch"}};

}  // namespace
}  // namespace adjacency_rules

extern const std::span<const Rule> kAdjacency = adjacency_rules::kRules;

}  // namespace stepscope
