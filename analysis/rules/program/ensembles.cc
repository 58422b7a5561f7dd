// Do networks of equal shape, each with its own weights, run one after the
// other? Sources: PyTorch tutorials, "Model ensembling":
// torch.func.stack_module_state and torch.vmap run all members at once;
// MegaBlocks (arxiv.org/abs/2211.15841): the experts of a mixture as one
// product of groups.
#include <algorithm>
#include <cstdint>
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
#include "evidence/recording_load.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "ops/op_traits.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace ensembles_rules {
namespace {

// Two networks may also be the two critics of an actor, or two heads. Our own
// choice.
constexpr size_t kLeastMembers = 3;
constexpr size_t kLeastLayers = 2;     // of a member
constexpr size_t kLongestMember = 64;  // ops
constexpr char kChange[] = "networks run at once";
constexpr char kExperts[] = "experts run at once";
// A loop with fewer experts costs little. Our own choice.
constexpr size_t kLeastExperts = 8;
// Code that takes less per step is not mentioned.
constexpr double kShortNs = 100'000;

// Consecutive equal chains of ops, in one step.
struct Ensemble {
  size_t step = 0;
  size_t members = 0, layers = 0;
  std::vector<RowId> ops = {};  // of all members
  Dims input = {}, output = {};
  double code_ns = 0;  // the program's code between the ops
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Ensemble> Find() {
    std::vector<Ensemble> found;
    for (const ForwardStep& step : m_.forward) {
      std::vector<RowId> ops;
      for (RowId row : step.ops) {
        if (!m_.tree.traits(row).bookkeeping) ops.push_back(row);
      }
      std::vector<Run> tried(kLongestMember + 1);  // by period
      for (size_t i = 0; i < ops.size(); ++i) {
        if (WeightArgument(m_.trace, ops[i]) == 0) continue;
        std::optional<Ensemble> one = EnsembleAt(ops, i, tried);
        if (!one) continue;
        i += one->ops.size() - 1;
        one->step = step.step;
        found.push_back(*std::move(one));
      }
    }
    return found;
  }

 private:
  // Ops that repeat with one period. Chains that start a period later are the
  // same without the first one, so only starts in the first period are tried.
  struct Run {
    size_t begin = 0, end = 0;
  };

  bool Same(RowId a, RowId b) const {
    const Op &one = m_.trace.ops()[a], &other = m_.trace.ops()[b];
    return one.name == other.name && one.inputs == other.inputs &&
           one.inputs != kNone;
  }

  // Returns the longest series of equal chains that starts with ops[first].
  // `tried`: see Run.
  std::optional<Ensemble> EnsembleAt(std::span<const RowId> ops, size_t first,
                                     std::vector<Run>& tried) {
    // Any distance up to the longest member may be the period. Comparing one
    // pair of ops rules out most distances.
    const size_t most =
        std::min(kLongestMember, (ops.size() - first) / kLeastMembers);
    for (size_t period = kLeastLayers; period <= most; ++period) {
      if (!Same(ops[first], ops[first + period])) continue;
      Run& run = tried[period];
      if (first >= run.end) {
        run = {.begin = first, .end = first + period};
        while (run.end < ops.size() &&
               Same(ops[run.end - period], ops[run.end])) {
          ++run.end;
        }
      } else if (first >= run.begin + period) {
        continue;
      }
      const size_t end = run.end;
      // Ops after the last layer of the last member may differ.
      size_t last_layer = period - 1;
      while (WeightArgument(m_.trace, ops[first + last_layer]) == 0) {
        --last_layer;
      }
      const size_t members =
          (end - first) / period + ((end - first) % period > last_layer);
      if (members < kLeastMembers) continue;
      const size_t length = std::min(end - first, members * period);
      std::optional<Ensemble> one =
          Members(ops.subspan(first, length), period, members);
      if (one) return one;
    }
    return {};
  }

  // True if the op before each chain but the first picks that chain's input
  // from a larger tensor that no op of the chains makes. An expert, for
  // example, gets its own tokens and not the result of the previous expert.
  bool PicksInput(std::span<const RowId> chains, size_t period,
                  const Dims& input) const {
    const RowId pick = chains[period - 1];
    const std::string_view name = PlainNameOf(m_.trace, pick);
    if (name != "index_select" && name != "index") return false;
    const Dims& source = DimsOf(m_.trace, pick, 0);
    if (source.empty() || input.empty() || source.back() != input.back() ||
        ElementsIn(source) <= ElementsIn(input)) {
      return false;
    }
    return std::ranges::none_of(chains.first(period), [&](RowId row) {
      const bool in_place =
          m_.trace.name(m_.trace.ops()[row].name).ends_with('_');
      return !in_place && ResultDims(m_.trace, row) == source;
    });
  }

  // Returns the ensemble for equal chains of `period` ops, the last of which
  // may lack the ops after its layers. Nullopt if a chain may take the result
  // of the previous chain, or if the chains share their weights.
  std::optional<Ensemble> Members(std::span<const RowId> chains, size_t period,
                                  size_t members) {
    const RowId first = chains.front();
    const size_t weight = WeightArgument(m_.trace, first);
    Ensemble one{.members = members,
                 .input = DimsOf(m_.trace, first, weight - 1)};
    const int64_t elements = ElementsIn(one.input);
    const bool picks = PicksInput(chains, period, one.input);
    for (RowId row : chains.first(period)) {
      const std::optional<Dims> made = ResultDims(m_.trace, row);
      // The next chain may take this result, as layers of one network do.
      if (!picks && made && ElementsIn(*made) == elements) return {};
      if (WeightArgument(m_.trace, row) == 0) continue;
      if (!made) return {};
      ++one.layers;
      one.output = *made;
    }
    if (one.layers < kLeastLayers) return {};
    if (!gradients_) gradients_.emplace(m_);
    std::vector<RowId> calls;  // calls of each chain's first layer
    for (size_t i = 0; i < chains.size(); i += period) {
      calls.push_back(chains[i]);
    }
    const std::vector<RowId> nodes = gradients_->NodesBehind(calls);
    if (nodes.empty()) return {};
    const auto [low, high] = std::ranges::minmax(nodes);
    if (gradients_->KeptAmong(low, high, DimsOf(m_.trace, first, weight)) <
        one.members - 1) {
      return {};
    }
    one.ops.assign(chains.begin(), chains.end());
    for (size_t i = 1; i < chains.size(); ++i) {
      one.code_ns += CodeNs(m_.trace, chains[i - 1], chains[i]);
    }
    return one;
  }

  const AnalysisContext& m_;
  std::optional<LayerGradients> gradients_;  // made when first needed
};

Verdict CheckNetworksOneByOne(const AnalysisContext& m) {
  const std::vector<Ensemble> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  MergedCalls merged(m);
  double code_ns = 0;  // per step
  for (const Ensemble& one : found) {
    const auto count = static_cast<double>(one.members);
    code_ns += one.code_ns / static_cast<double>(m.steps.steady.size());
    merged.AddCode(one.code_ns, count);
    for (RowId row : one.ops) merged.Add(row, count);
  }
  MergedCalls::Sum sum = merged.Total(kChange);
  const Ensemble& largest = *std::ranges::max_element(
      found, {}, [](const Ensemble& one) { return one.ops.size(); });
  Finding finding = FindingAbout(m, largest.ops.front(), largest.ops.back(),
                                 "the first to the last network");
  finding.evidence =
      Count(static_cast<int64_t>(largest.members), "network") +
      " of one shape, with " +
      Count(static_cast<int64_t>(largest.layers), "layer") +
      " each that make " + InBrackets(largest.output) + " of " +
      InBrackets(largest.input) +
      ", run one after the other, each with weights of its own. With their "
      "backward passes, this takes " +
      Milliseconds(sum.ns * 1e-6) + " per step" +
      (code_ns >= kShortNs
           ? ", and the code between their ops " + Milliseconds(code_ns * 1e-6)
           : "") +
      ".";
  finding.assumption =
      "at best: batched products run at the best rate of such products, and "
      "the code around the calls runs once";
  finding.fix_python =
      "stack the weights and run all networks at once: params, buffers = "
      "torch.func.stack_module_state(models), and torch.vmap of "
      "torch.func.functional_call; or torch.baddbmm with weights of [networks, "
      "inputs, outputs]";
  finding.fix_cpp =
      "stack the weights and run all networks at once: torch::baddbmm with "
      "weights of [networks, inputs, outputs]";
  finding.wrong_if = "a network takes what the one before it made";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = sum.bound_ns,
                    .trials = {std::move(sum.edit)}});
}

// The experts of one layer, in one step.
struct ExpertLoop {
  size_t step = 0;
  size_t experts = 0;
  std::vector<RowId> products = {};  // outermost ops that multiply
  std::vector<RowId> rest = {};      // the other ops of the passes
};

// Reads the forward ops of a step as passes of a loop over experts: list the
// tokens of the expert, gather them, multiply, and add the results to those of
// all tokens.
class ExpertFinder {
 public:
  explicit ExpertFinder(const AnalysisContext& context) : m_(context) {}

  std::vector<ExpertLoop> Find() {
    for (const ForwardStep& step : m_.forward) {
      Close();
      loop_.step = step.step;
      for (RowId row : step.ops) {
        if (!m_.tree.traits(row).bookkeeping) Take(row);
      }
    }
    Close();
    return std::move(found_);
  }

 private:
  // One pass.
  struct Pass {
    std::vector<RowId> products = {}, rest = {};
    bool lists = false, gathers = false;
  };

  bool ListsPlaces(RowId row) const {
    return std::ranges::any_of(m_.tree.inside(row), [&](RowId inner) {
      return PlainNameOf(m_.trace, inner) == "nonzero";
    });
  }
  bool HasProduct(RowId row) const {
    return std::ranges::any_of(m_.tree.inside(row), [&](RowId inner) {
      return Multiplies(m_.tree.traits(inner).kind);
    });
  }

  void Take(RowId row) {
    const std::string_view name = PlainNameOf(m_.trace, row);
    const bool lists = ListsPlaces(row);
    // x[mask] lists and gathers at once.
    const bool gathers = name == "index" || name == "index_select";
    if (lists && pass_.products.empty()) pass_ = {};
    if (lists || gathers) {
      pass_.lists |= lists;
      pass_.gathers |= gathers;
      pass_.rest.push_back(row);
      return;
    }
    if (!pass_.gathers) {
      // Between two loops the network computes something else.
      if (HasProduct(row)) Close();
      return;
    }
    if (HasProduct(row)) {
      pass_.products.push_back(row);
      return;
    }
    pass_.rest.push_back(row);
    if (!IsAnyOf(name, {"index_add", "index_put", "index_copy", "scatter_add",
                        "index_reduce"})) {
      return;
    }
    if (pass_.lists && pass_.products.size() >= kLeastLayers) AddPass();
    pass_ = {};
  }

  void AddPass() {
    ++loop_.experts;
    const auto append = [](std::vector<RowId>& to, std::vector<RowId>& rows) {
      to.insert(to.end(), rows.begin(), rows.end());
    };
    append(loop_.products, pass_.products);
    append(loop_.rest, pass_.rest);
  }

  void Close() {
    if (loop_.experts >= kLeastExperts) found_.push_back(std::move(loop_));
    loop_ = {.step = loop_.step};
    pass_ = {};
  }

  const AnalysisContext& m_;
  std::vector<ExpertLoop> found_;
  ExpertLoop loop_;
  Pass pass_;
};

Verdict CheckExpertsOneByOne(const AnalysisContext& m) {
  const std::vector<ExpertLoop> found = ExpertFinder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> products, rest;
  double experts = 0;
  for (const ExpertLoop& one : found) {
    const auto count = static_cast<double>(one.experts);
    experts += count;
    for (RowId row : one.products) AppendWithNodes(m, row, 1 / count, products);
    for (RowId row : one.rest) AppendWithNodes(m, row, 1 / count, rest);
  }
  const auto steps = static_cast<double>(m.steps.steady.size());
  const auto events = static_cast<double>(products.size() + rest.size());
  ShortenedOps called = ShortenOps(m, std::move(products), kExperts);
  const ShortenedOps moved = ShortenOps(m, std::move(rest), kExperts);
  // A product of groups computes as much as the products of all experts, and
  // only the calls are saved.
  called.edit.scales.clear();
  Edit edit = Combine(called.edit, moved.edit);
  double host_ns = 0;
  for (const HostCut& cut : edit.cuts) {
    host_ns += static_cast<double>(cut.span.length()) - cut.keep_ns;
  }
  const RowId first = found.front().products.front();
  Finding finding = FindingAbout(m, first, found.front().products.back(),
                                 "a loop of experts");
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      "Experts run one after the other, " +
      MeanCount(experts / static_cast<double>(found.size()), "expert") + " " +
      MeanCount(static_cast<double>(found.size()) / steps, "time") +
      " per step: for each one, the program lists its tokens and waits for "
      "their number, gathers them, multiplies, and adds up the results. With "
      "the backward pass this takes the host " +
      Milliseconds(host_ns / steps * 1e-6) +
      " per step. On the GPU, all but the products takes " +
      Milliseconds(moved.ns * 1e-6) + ".";
  finding.assumption =
      "at best: one call for all experts of a layer, whose product of groups "
      "computes as long as the products of all experts";
  finding.fix_python =
      "sort the tokens by expert once per layer (order = experts.argsort(), "
      "sizes = experts.bincount()), and multiply them as groups: "
      "torch._grouped_mm (torch 2.8), MegaBlocks or ScatterMoE; transformers: "
      "experts_implementation=\"grouped_mm\"";
  finding.fix_cpp =
      "sort the tokens by expert once per layer, and multiply them as groups: "
      "at::_grouped_mm, or CUTLASS's grouped GEMM";
  finding.wrong_if = "the experts have different shapes";
  const double bound_ns =
      moved.saved_ns +
      std::min(LargestUnrecordedNs(m, host_ns / steps, events / steps),
               m.MeanNs(Cause::kDispatch) + m.MeanNs(Cause::kHostCode) +
                   m.MeanNs(Cause::kSync) + m.MeanNs(Cause::kBlockingCopy) +
                   m.MeanNs(Cause::kKernelLatency));
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = bound_ns,
                    .trials = {std::move(edit)}});
}

constexpr Rule kRules[] = {
    {.id = "experts-one-by-one",
     .question = "Do the experts of a mixture run one after the other?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kOp},
     .causes = {Cause::kDispatch, Cause::kSync, Cause::kHostCode,
                Cause::kCompute},
     .check = &CheckExpertsOneByOne,
     .reference = "MegaBlocks: https://arxiv.org/abs/2211.15841",
     .detect = "in two thirds of the steps, eight passes or more follow each "
               "other that list places (aten::nonzero, also inside where or "
               "index), gather rows, call two products or more, and add the "
               "results by index",
     .avoid = "other products run between the passes, or a pass has fewer than "
              "two products: rows of groups (boolean-mask)",
     .fix_cpp = "at::_grouped_mm on tokens sorted by expert",
     .fix_python = "torch._grouped_mm, MegaBlocks or ScatterMoE on tokens "
                   "sorted by expert"},
    {.id = "networks-one-by-one",
     .question = "Do networks of one shape, each with its own weights, run one "
                 "after the other?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kHostCode},
     .check = &CheckNetworksOneByOne,
     .reference = "PyTorch tutorials, Model ensembling: "
                  "https://docs.pytorch.org/tutorials/intermediate/"
                  "ensembling.html",
     .detect =
         "in two thirds of the steps, three or more equal chains of ops with "
         "two layers or more follow each other; no op in them makes a tensor "
         "as large as what they take, so that none takes the result of "
         "another, or each takes rows picked from one larger tensor; and the "
         "backward pass keeps a gradient of the first weight "
         "for each",
     .avoid = "the chains share their weights, are blocks of one deep network, "
              "or each is trained before the next one runs",
     .fix_cpp = "torch::baddbmm with stacked weights",
     .fix_python = "torch.func.stack_module_state and torch.vmap"}};

}  // namespace
}  // namespace ensembles_rules

extern const std::span<const Rule> kEnsembles = ensembles_rules::kRules;

}  // namespace stepscope
