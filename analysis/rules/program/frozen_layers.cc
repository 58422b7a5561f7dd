// Do layers that are never trained compute the same results in each epoch?
// Source: PyTorch tutorials, "Transfer Learning for Computer Vision": a network
// as a fixed feature extractor.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/gradients/layer_calls.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "ops/contains.h"
#include "ops/loader_spans.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace frozen_layers_rules {
namespace {

// A single product may be a transformation of the data. Our own choice.
constexpr size_t kLeastFrozen = 2;
constexpr double kLeastFrozenShare = 0.1;  // of the step, as for loops
constexpr double kMostTwins = 0.5;         // of the layers; our own choice

// Layers of a step that are never trained, from the first to the last of them.
struct Frozen {
  size_t step = 0;
  std::vector<RowId> ops = {};     // ops without gradients among them
  std::vector<RowId> layers = {};  // in time order
  Dims input = {};
};

class FrozenLayers {
 public:
  explicit FrozenLayers(const AnalysisContext& context)
      : m_(context), loads_(LoaderSpans(m_.trace, m_.steps.thread)) {}

  std::vector<Frozen> Find() {
    std::vector<Frozen> found;
    for (const ForwardStep& step : m_.forward) {
      Frozen one = In(step);
      if (one.layers.size() >= kLeastFrozen) found.push_back(std::move(one));
    }
    return found;
  }

 private:
  Frozen In(const ForwardStep& step) {
    Frozen one{.step = step.step};
    std::vector<RowId> since;   // ops since the last layer
    std::set<int64_t> trained;  // element counts of trained layers' results
    bool linked = false;        // nodes are linked to forward ops
    std::vector<RowId> of_trained_size;  // layers of such sizes
    std::set<Call> trained_calls;
    for (RowId row : step.ops) {
      if (Covers(loads_, m_.trace.ops()[row].begin_ns)) continue;
      const std::optional<Dims> made = ResultDims(m_.trace, row);
      if (!m_.backward.Of(m_.trace.ops()[row]).empty()) {
        if (made) trained.insert(ElementsIn(*made));
        trained_calls.insert(CallOf(row));
        linked |= IsLayer(PlainNameOf(m_.trace, row));
        continue;
      }
      // Random numbers drawn before the layers may augment the samples.
      if ((one.layers.empty() && Draws(row)) || DropsOut(row)) return {};
      since.push_back(row);
      const size_t weight = WeightArgument(m_.trace, row);
      if (weight == 0) continue;
      const Dims& input = DimsOf(m_.trace, row, weight - 1);
      if (!gradients_) gradients_.emplace(m_);
      // Two matrices of one size are data, such as those of a graph.
      if (DimsOf(m_.trace, row, weight) == input ||
          trained.contains(ElementsIn(input))) {
        since.clear();
        continue;
      }
      if (gradients_->KeptAmong(0, kNone, DimsOf(m_.trace, row, weight)) > 0) {
        of_trained_size.push_back(row);
      }
      if (one.layers.empty()) {
        one.input = input;
        since = {row};
      }
      one.layers.push_back(row);
      one.ops.insert(one.ops.end(), since.begin(), since.end());
      since.clear();
    }
    // A twin of the trained network may follow it. Single layers may have the
    // sizes of trained ones by chance.
    const auto twins = static_cast<double>(std::ranges::count_if(
        of_trained_size,
        [&](RowId row) { return trained_calls.contains(CallOf(row)); }));
    // If no node were linked to its op, every layer would seem untrained.
    if (!linked ||
        twins > kMostTwins * static_cast<double>(one.layers.size())) {
      return {};
    }
    return one;
  }

  // The sizes of a layer's weight and, for a convolution, of the pictures that
  // it takes, without the number of channels and samples. A twin takes pictures
  // of the same size.
  using Call = std::pair<Dims, Dims>;
  Call CallOf(RowId row) const {
    const size_t weight = WeightArgument(m_.trace, row);
    if (weight == 0) return {};
    const Dims& dims = DimsOf(m_.trace, row, weight);
    const Dims& input = DimsOf(m_.trace, row, weight - 1);
    if (dims.size() <= 2 || input.size() <= 2) return {dims, {}};
    return {dims, Dims(input.begin() + 2, input.end())};
  }

  static bool IsLayer(std::string_view plain_name) {
    return IsProduct(plain_name) || plain_name.starts_with("conv");
  }

  // True for ops that draw random real numbers. Random integers choose samples.
  bool Draws(RowId row) const {
    const std::string_view name = PlainNameOf(m_.trace, row);
    return !IsAnyOf(name, {"randint", "random", "randperm"}) &&
           (name.starts_with("rand") || name.starts_with("bernoulli") ||
            name.starts_with("normal") || name.starts_with("uniform") ||
            name == "multinomial");
  }
  // True for active dropout, as in a network that was not set to eval().
  bool DropsOut(RowId row) const {
    return PlainNameOf(m_.trace, row) == "dropout" &&
           FlagArgument(m_.trace, row, 2) && !IsZero(row, 1);
  }
  // True if an argument was recorded as 0, such as "0.".
  bool IsZero(RowId row, size_t argument) const {
    const std::string_view text = TextArgument(m_.trace, row, argument);
    return !text.empty() &&
           text.find_first_not_of("0.") == std::string_view::npos;
  }

  const AnalysisContext& m_;
  const std::vector<Span> loads_;
  std::optional<LayerGradients> gradients_;  // made when first needed
};

Verdict CheckFrozenForward(const AnalysisContext& m) {
  if (m.steps.thread == kNone || m.parts.optimizer.spans.empty()) {
    return Clean();
  }
  const std::vector<Frozen> found = FrozenLayers(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  for (const Frozen& one : found) {
    for (RowId row : one.ops) ops.push_back({row, 0});
  }
  const ShortenedOps all =
      ShortenOps(m, std::move(ops), "results of frozen layers kept");
  if (all.saved_ns < kLeastFrozenShare * m.step_ns()) return Clean();
  const Frozen& one = found.front();
  Finding finding = FindingAbout(m, one.layers.front(), one.layers.back(),
                                 "the layers that are not trained");
  finding.confidence = Confidence::kHint;
  finding.evidence =
      Count(static_cast<int64_t>(one.layers.size()), "layer") +
      " run without gradients in each step, on " + InBrackets(one.input) +
      ", and most of them are no twins of trained layers, with equal weights "
      "and inputs of one size. With what runs between them, this takes " +
      Milliseconds(all.saved_ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) +
      " step. Where samples come back unchanged in the next epoch, so do the "
      "results.";
  finding.assumption =
      "at best: the results are kept, and reading them takes no time";
  finding.fix_python =
      "run the frozen layers once over the data under torch.no_grad(), keep "
      "the results (a TensorDataset, or files), and train on these";
  finding.fix_cpp =
      "run the frozen layers once over the data under a torch::NoGradGuard, "
      "keep the results, and train on these";
  finding.wrong_if =
      "samples are augmented, new, or made by what is trained; the layers "
      "change (a moving average of those that are trained), or the results "
      "need too much memory";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = all.saved_ns,
                    .trials = {all.edit},
                    .at_most = FindingSeverity::kLow});
}

constexpr Rule kRules[] = {
    {.id = "frozen-forward",
     .question = "Do layers that are never trained compute the same in each "
                 "epoch?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckFrozenForward,
     .reference = "PyTorch tutorials, Transfer Learning for Computer Vision: "
                  "https://docs.pytorch.org/tutorials/beginner/"
                  "transfer_learning_tutorial.html",
     .detect =
         "in two thirds of the steps of a run that trains, two linear layers "
         "or convolutions or more run in the forward pass without an autograd "
         "node, with what runs between them for a tenth of the step. A hint "
         "that is low at most: whether samples come back unchanged, no "
         "recording says",
     .avoid =
         "most layers have the sizes of trained ones, of the weights and of "
         "the pictures, as those of a target network's twin; the layers take "
         "what trained layers made; "
         "random numbers are drawn in front of them; or they run in the "
         "loader",
     .fix_cpp = "the frozen layers once over the data, and training on their "
                "results",
     .fix_python = "the frozen layers once over the data, and training on "
                   "their results"}};

}  // namespace
}  // namespace frozen_layers_rules

extern const std::span<const Rule> kFrozenLayers = frozen_layers_rules::kRules;

}  // namespace stepscope
