// Are the neighbours of a graph's nodes summed up in each step before any
// weight is involved? Source: Wu et al. 2019, Simplifying Graph Convolutional
// Networks, section 2: the K-th power of the normalised adjacency matrix times
// the features needs no weight, so it is computed once, before training.
#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/gradient_passes.h"
#include "evidence/program/message_passes.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "ops/contains.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace propagation_rules {
namespace {

constexpr char kChange[] = "neighbours summed up once";
// With fewer steps, equal sizes say little. Our own choice.
constexpr size_t kLeastSteps = 3;

// The passes of one step that no gradient goes through, and the ops of the step
// up to the last of them that have no gradient either.
struct Propagation {
  std::vector<MessagePass> passes = {};
  std::vector<RowId> ops = {};
};

using Sizes = std::vector<std::tuple<int64_t, int64_t, int64_t, double>>;

Sizes SizesOf(const Propagation& one) {
  Sizes sizes;
  for (const MessagePass& pass : one.passes) {
    sizes.emplace_back(pass.edges, pass.sources, pass.targets, pass.row_bytes);
  }
  return sizes;
}

bool HasNodes(const AnalysisContext& m, RowId row) {
  return !m.backward.Of(m.trace.ops()[row]).empty();
}

bool IsRandom(const Trace& trace, RowId row) {
  const std::string_view name = PlainNameOf(trace, row);
  return Contains(name, "rand") || Contains(name, "dropout") ||
         IsAnyOf(name, {"bernoulli", "normal", "uniform", "multinomial"});
}

std::map<size_t, Propagation> FindPropagations(const AnalysisContext& m) {
  std::map<size_t, Propagation> by_step;
  for (MessagePass& pass : FindMessagePasses(m)) {
    if (pass.sized()) by_step[pass.step].passes.push_back(std::move(pass));
  }
  for (const ForwardStep& step : m.forward) {
    const auto found = by_step.find(step.step);
    if (found == by_step.end()) continue;
    Propagation& one = found->second;
    // Only what runs before the first op that is trained needs no weight. A
    // pass of validation comes later.
    const auto trained = std::ranges::find_if(
        step.ops, [&](RowId row) { return HasNodes(m, row); });
    const std::span<const RowId> before(step.ops.begin(), trained);
    std::erase_if(one.passes, [&](const MessagePass& pass) {
      return std::ranges::find(before, pass.scatter) == before.end();
    });
    // What random numbers make differs from step to step.
    const bool random = std::ranges::any_of(
        before, [&](RowId row) { return IsRandom(m.trace, row); });
    if (one.passes.empty() || random) {
      one.passes.clear();
      continue;
    }
    const auto last = std::ranges::find(before, one.passes.back().scatter) + 1;
    one.ops.assign(before.begin(), last);
  }
  std::erase_if(by_step,
                [](const auto& entry) { return entry.second.passes.empty(); });
  return by_step;
}

Verdict CheckConstantPropagation(const AnalysisContext& m) {
  if (m.steps.thread == kNone || !Trains(m.trace)) return Clean();
  const std::map<size_t, Propagation> found = FindPropagations(m);
  if (found.size() < kLeastSteps || found.size() < m.steps.steady.size()) {
    return Clean();
  }
  // Batches of a loader, such as sampled neighbours, differ in size.
  const Propagation& first = found.begin()->second;
  const bool alike = std::ranges::all_of(found, [&](const auto& entry) {
    return SizesOf(entry.second) == SizesOf(first);
  });
  if (!alike) return Clean();
  std::vector<ShortenedOp> ops;
  for (const auto& [step, one] : found) {
    for (RowId row : one.ops) ops.push_back({row, 0});
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const MessagePass& pass = first.passes.front();
  Finding finding = FindingAbout(m, pass.gather, pass.scatter,
                                 "rows of neighbours, summed up");
  // The recording does not show whether the features are the same, too.
  finding.confidence = Confidence::kHint;
  finding.evidence =
      "The rows of neighbours are summed up over " + Count(pass.edges, "edge") +
      ", " + MeanCount(static_cast<double>(first.passes.size()), "time") +
      " per step, before any weight is involved, and the sizes are the same "
      "in each step. If graph and features are the same as well, so are the "
      "sums. With the ops before them, they take " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption = "at best: graph and features are the same in each step";
  finding.fix_python =
      "sum them up once, before the loop, and train on the result "
      "(torch_geometric: SGConv(cached=True), or the transform SIGN)";
  finding.fix_cpp =
      "sum them up once, before the loop, and train on the result";
  finding.wrong_if =
      "each step brings other features, or another graph of the same size";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = all.saved_ns,
                    .trials = {all.edit}});
}

constexpr Rule kRules[] = {
    {.id = "constant-propagation",
     .question = "Are a graph's neighbours summed up in each step before any "
                 "weight is involved?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckConstantPropagation,
     .reference = "Wu et al. 2019, Simplifying Graph Convolutional Networks, "
                  "section 2: https://arxiv.org/abs/1902.07153",
     .detect =
         "in every steady step of a run that trains, three at least, rows "
         "are gathered and summed up by index without gradients, over as "
         "many edges and nodes each time",
     .avoid =
         "random numbers are drawn before; sizes vary, as those of sampled "
         "neighbours do; a weight or another op works on each edge",
     .fix_cpp = "the sums once, before the loop",
     .fix_python = "the sums once, before the loop (SGConv(cached=True))"}};

}  // namespace
}  // namespace propagation_rules

extern const std::span<const Rule> kPropagation = propagation_rules::kRules;

}  // namespace stepscope
