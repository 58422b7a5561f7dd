// Are scores computed for tokens whose labels the loss ignores? Source: PyTorch
// documentation, torch.nn.functional.cross_entropy: targets equal to
// ignore_index do not contribute to the gradient, and the mean is taken over
// the other targets.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/program/forward_ops.h"
#include "evidence/program/op_shapes.h"
#include "ops/backward_nodes.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace labels_rules {
namespace {

// A text's start token takes one position at the start of each row. A prompt is
// longer.
constexpr int64_t kShortestPrompt = 2;
constexpr int64_t kUsualNumber = -100;  // ignore_index by default
constexpr char kChange[] = "scores only where labels count";

// An op that writes one number into integers, which may be labels.
struct Masking {
  size_t at = 0;        // index into ForwardStep::ops
  Dims dims = {};       // sizes of all the integers
  int64_t filled = -1;  // number of integers set; -1: those in a mask
  // As recorded: "-100"; empty if unknown.
  std::string_view value = {};
  bool made = false;     // makes the integers, with that value
  bool prompt = false;   // fills the start of rows
  bool padding = false;  // the mask compares a tensor with one value
};

// A loss over classes, and the product that makes its scores.
struct Loss {
  size_t at = 0, head = 0;  // indices into ForwardStep::ops
  int64_t labels = 0, classes = 0;
  std::optional<int64_t> ignored = {};  // ignore_index
};

enum class Sure : uint8_t { kNo, kHint, kYes };

// A loss that ignores labels masked by the step.
struct Ignored {
  size_t step = 0;
  RowId masks = kNone, head = kNone, loss = kNone;
  int64_t labels = 0, classes = 0;
  int64_t number = kUsualNumber;
  Masking how = {};  // the surest masking
  Sure sure = Sure::kNo;
  double share = 1;             // most labels that are ignored, as a share
  bool counted = false;         // the share was recorded
  std::vector<RowId> ops = {};  // on the scores, including the product
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context)
      : m_(context), trace_(context.trace) {
    std::vector<bool> is_loss(trace_.name_count());
    for (NameId name = 0; name < is_loss.size(); ++name) {
      is_loss[name] = IsAnyOf(trace_.name(name), {"aten::nll_loss_forward",
                                                  "aten::nll_loss2d_forward"});
    }
    for (RowId row = 0; row < trace_.ops().size(); ++row) {
      if (is_loss[trace_.ops()[row].name] && !m_.tree.in_backward(row)) {
        losses_[OutermostOf(trace_, row)] = row;
      }
    }
  }

  std::vector<Ignored> Find() {
    std::vector<Ignored> found;
    if (losses_.empty()) return found;
    for (const ForwardStep& step : m_.forward) {
      ops_ = step.ops;
      maskings_.clear();
      size_t since = 0;  // after the last loss
      for (size_t i = 0; i < ops_.size(); ++i) {
        AddMasking(i);
        const std::optional<Loss> loss = LossAt(i);
        if (!loss) continue;
        Ignored one = Judged(*loss, since);
        // It may be another loss over the same labels.
        if (one.sure == Sure::kNo) one = Judged(*loss, 0);
        since = i + 1;
        if (one.sure == Sure::kNo) continue;
        one.step = step.step;
        found.push_back(std::move(one));
      }
    }
    return found;
  }

 private:
  std::string_view NameAt(size_t i) const {
    return PlainNameOf(trace_, ops_[i]);
  }
  bool IsOfIntegers(RowId row, size_t index) const {
    return trace_.name(TensorArgument(trace_, row, index).type) == "long int";
  }

  void AddMasking(size_t i) {
    const RowId row = ops_[i];
    const std::string_view name = NameAt(i);
    if (name == "masked_fill") {
      AddMasked(i, 0, TextArgument(trace_, row, 2));
    } else if (name == "where") {
      for (size_t labels : {1, 2}) {
        if (DimsOf(trace_, row, 3 - labels).empty()) {
          AddMasked(i, labels, TextArgument(trace_, row, 3 - labels));
        }
      }
    } else if (name == "index_put") {
      AddIndexed(i);
    } else if (name == "fill") {
      AddFilled(i);
    } else if (name == "full_like") {
      AddMade(i, DimsOf(trace_, row, 0), TextArgument(trace_, row, 1));
    } else if (name == "full") {
      AddMade(i, ListArgument(trace_, row, 0), TextArgument(trace_, row, 1));
    } else if (name == "new_full") {
      AddMade(i, ListArgument(trace_, row, 1), TextArgument(trace_, row, 2));
    }
  }

  void AddMasked(size_t i, size_t labels, std::string_view value) {
    if (!IsOfIntegers(ops_[i], labels)) return;
    maskings_.push_back({.at = i,
                         .dims = DimsOf(trace_, ops_[i], labels),
                         .value = value,
                         .padding = ComparesBefore(i)});
  }

  // labels[mask] = -100, which runs masked_fill_.
  void AddIndexed(size_t i) {
    for (RowId row : m_.tree.inside(ops_[i])) {
      if (PlainNameOf(trace_, row) == "masked_fill") {
        return AddMasked(i, 0, TextArgument(trace_, row, 2));
      }
    }
  }

  // labels[:, :48] = -100, or labels[i, :48] = -100.
  void AddFilled(size_t i) {
    if (i == 0 || !IsOfIntegers(ops_[i], 0)) return;
    const RowId slice = ops_[i - 1];
    if (!IsAnyOf(NameAt(i - 1), {"slice", "narrow"})) return;
    const Dims& filled = DimsOf(trace_, ops_[i], 0);
    Dims dims = DimsOf(trace_, slice, 0);
    const std::optional<size_t> dim =
        DimArgument(trace_, slice, 1, dims.size());
    if (!dim || filled.size() != dims.size()) return;
    const bool prompt = *dim + 1 == dims.size() &&
                        NumberArgument(trace_, slice, 2) == 0 &&
                        filled.back() >= kShortestPrompt;
    if (i > 1 && NameAt(i - 2) == "select") {  // a single row
      const Dims& all = DimsOf(trace_, ops_[i - 2], 0);
      if (all.size() == dims.size() + 1 &&
          std::equal(dims.begin(), dims.end(), all.begin() + 1)) {
        dims = all;
      }
    }
    maskings_.push_back({.at = i,
                         .dims = std::move(dims),
                         .filled = ElementsIn(filled),
                         .value = TextArgument(trace_, ops_[i], 1),
                         .prompt = prompt});
  }

  void AddMade(size_t i, Dims dims, std::string_view value) {
    maskings_.push_back(
        {.at = i, .dims = std::move(dims), .value = value, .made = true});
  }

  // True if the last computing op before ops_[i] is `==`.
  bool ComparesBefore(size_t i) const {
    while (i-- > 0) {
      if (!m_.tree.traits(ops_[i]).bookkeeping) return NameAt(i) == "eq";
    }
    return false;
  }

  // True if a tensor of these sizes, such as the numbers of segments, was
  // filled with zeros or ones before ops_[i].
  bool MakesBlank(size_t i, const Dims& dims) const {
    for (size_t k = 0; k < i; ++k) {
      const RowId row = ops_[k];
      const std::string_view name = NameAt(k);
      if ((IsAnyOf(name, {"zeros", "ones", "full"}) &&
           ListArgument(trace_, row, 0) == dims) ||
          (IsAnyOf(name, {"new_zeros", "new_ones", "new_full"}) &&
           ListArgument(trace_, row, 1) == dims) ||
          (IsAnyOf(name, {"zeros_like", "ones_like", "full_like"}) &&
           DimsOf(trace_, row, 0) == dims)) {
        return true;
      }
    }
    return false;
  }

  std::optional<Loss> LossAt(size_t i) const {
    const auto at = losses_.find(ops_[i]);
    if (at == losses_.end()) return {};
    const RowId row = at->second;
    const Dims& scores = DimsOf(trace_, row, 0);
    if (scores.size() < 2) return {};
    Loss loss{.at = i,
              .labels = ElementsIn(DimsOf(trace_, row, 1)),
              // Also for images: [batch, classes, height, width].
              .classes = scores[1],
              .ignored = NumberArgument(trace_, row, 4)};
    const std::optional<size_t> head = HeadOf(loss);
    if (!head) return {};
    loss.head = *head;
    return loss;
  }

  // True if `rows` rows give one row per label. Each sequence may lack its
  // first or last row, with sequences of equal length.
  static bool HasRowForEach(int64_t labels, int64_t rows) {
    const int64_t sequences = rows - labels;
    return sequences == 0 ||
           (sequences > 0 && rows > sequences && rows % sequences == 0);
  }

  // Returns the product that makes the scores, with one row per label.
  std::optional<size_t> HeadOf(const Loss& loss) const {
    for (size_t i = loss.at; i-- > 0;) {
      const std::string_view name = NameAt(i);
      if (IsAnyOf(name, {"index_add", "scatter_add", "scatter_reduce"}) &&
          TakesScores(ops_[i], loss)) {
        return {};  // sums of rows, as over the neighbours in a graph
      }
      if (!IsProduct(name)) continue;
      const std::optional<Dims> made = ResultDims(trace_, ops_[i]);
      if (!made || made->size() < 2 || made->back() != loss.classes ||
          !HasRowForEach(loss.labels, ElementsIn(*made) / loss.classes)) {
        continue;
      }
      if (MixesRows(i, *made)) return {};
      return i;
    }
    return {};
  }

  // True if the result of the product ops_[i] may consist of sums of rows that
  // another product made.
  bool MixesRows(size_t i, const Dims& made) const {
    // A linear layer multiplies by a weight, so rows stay separate. Other
    // products may multiply by an adjacency matrix.
    if (NameAt(i) == "linear" || !TakesDims(trace_, ops_[i], made)) {
      return false;
    }
    while (i-- > 0) {
      if (IsProduct(NameAt(i))) return ResultDims(trace_, ops_[i]) == made;
    }
    return false;
  }

  bool TakesScores(RowId row, const Loss& loss) const {
    for (size_t index = 0; index < 3; ++index) {
      const Dims& dims = DimsOf(trace_, row, index);
      if (dims.size() >= 2 && std::ranges::count(dims, loss.classes) &&
          HasRowForEach(loss.labels, ElementsIn(dims) / loss.classes)) {
        return true;
      }
    }
    return false;
  }

  static bool AreLabels(const Dims& dims, int64_t labels) {
    if (dims.empty()) return false;
    const int64_t all = ElementsIn(dims);
    // The labels of a language model are shifted by one.
    return all == labels || (dims.size() > 1 && dims.back() > 1 &&
                             all - all / dims.back() == labels);
  }

  // True if the model may look up rows with the result of ops_[i].
  bool MayBeInput(size_t i, const Loss& loss) const {
    while (++i < loss.head) {
      if (IsAnyOf(NameAt(i), {"embedding", "embedding_bag", "index",
                              "index_select", "one_hot"})) {
        return true;
      }
    }
    return false;
  }

  Sure Judge(const Masking& one, const Loss& loss) const {
    if (!AreLabels(one.dims, loss.labels)) return Sure::kNo;
    const bool late = !MayBeInput(one.at, loss);
    if (one.value.empty()) {
      return (late && !one.made) ||
                     (one.prompt && !MakesBlank(one.at, one.dims))
                 ? Sure::kHint
                 : Sure::kNo;
    }
    const int64_t number = loss.ignored.value_or(kUsualNumber);
    if (NumberIn(one.value) != number) return Sure::kNo;
    // Numbers from 0 on may also be words.
    if (number >= 0) return late && !one.made ? Sure::kHint : Sure::kNo;
    // The recording does not show how much of a batch is padding, and an
    // ignore_index that was not recorded is only assumed.
    return one.padding || !loss.ignored ? Sure::kHint : Sure::kYes;
  }

  // Judges the loss by the maskings from ops_[since] on.
  Ignored Judged(const Loss& loss, size_t since) const {
    Ignored found{.head = ops_[loss.head],
                  .loss = ops_[loss.at],
                  .labels = loss.labels,
                  .classes = loss.classes,
                  .number = loss.ignored.value_or(kUsualNumber)};
    int64_t filled = 0;
    bool counted = true;
    for (const Masking& one : maskings_) {
      const Sure sure = one.at < since ? Sure::kNo : Judge(one, loss);
      if (sure == Sure::kNo) continue;
      filled += std::max<int64_t>(one.filled, 0);
      counted &= one.filled >= 0;
      if (sure <= found.sure) continue;
      found.sure = sure;
      found.how = one;
      found.masks = ops_[one.at];
    }
    if (found.sure == Sure::kNo) return found;
    found.counted = counted;
    if (counted) {
      found.share = std::min(
          1.0, static_cast<double>(filled) / static_cast<double>(loss.labels));
    }
    for (size_t i = loss.head; i <= loss.at; ++i) {
      if (i == loss.head || i == loss.at || TakesScores(ops_[i], loss)) {
        found.ops.push_back(ops_[i]);
      }
    }
    return found;
  }

  const AnalysisContext& m_;
  const Trace& trace_;
  std::map<RowId, RowId> losses_;  // keyed by the outermost op
  // For the current step:
  std::span<const RowId> ops_;
  std::vector<Masking> maskings_;
};

std::string WhatMasks(const AnalysisContext& m, const Ignored& one) {
  const std::string name(m.trace.name(m.trace.ops()[one.masks].name));
  const std::string value(one.how.value);
  if (one.how.made) {
    return name + " makes labels of " + value +
           ", and the loss ignores those that stay so: the scores of their "
           "tokens change nothing. ";
  }
  if (value.empty()) {
    return name + " sets " +
           (one.counted ? "the start of rows, about " + Percent(one.share) +
                              " of what may be the labels,"
                        : std::string("what may be labels under a mask")) +
           " to a number that was not recorded. If the loss ignores it "
           "(ignore_index), the scores of these tokens change nothing. ";
  }
  return name + " sets " +
         (one.counted ? "about " + Percent(one.share) + " of the labels"
                      : std::string("labels under a mask")) +
         " to " + value +
         ", which the loss ignores: the scores of these tokens change "
         "nothing. ";
}

void Advise(const AnalysisContext& m, const Ignored& one, Finding& finding) {
  const std::string keep = "keep = labels != " + std::to_string(one.number);
  finding.fix_python =
      "hand only rows whose label counts to the last layer: " + keep +
      " (of labels that are already shifted), then "
      "F.cross_entropy(head(x[keep]), labels[keep]); in Hugging Face "
      "Transformers, logits_to_keep names the positions that get scores";
  finding.fix_cpp =
      "hand only rows whose label counts to the last layer: auto " + keep +
      "; torch::nn::functional::cross_entropy(head(x.index({keep})), "
      "labels.index({keep}))";
  if (m.has_gpu) {
    const char* wait =
        "; x[keep] waits for the GPU, and an index that the data loader makes "
        "of the labels, keep.nonzero(), does not";
    finding.fix_python += wait;
    finding.fix_cpp += wait;
  }
  finding.wrong_if = "the other scores are used for something else as well";
  if (one.how.value.empty()) {
    finding.wrong_if =
        "what is set are not the labels, or the loss does not ignore the "
        "number; or " +
        finding.wrong_if;
  }
}

Finding Described(const AnalysisContext& m, const Ignored& one, double ns) {
  Finding finding =
      FindingAbout(m, one.head, one.loss, "the product and the loss");
  if (one.sure == Sure::kHint) finding.confidence = Confidence::kHint;
  finding.evidence =
      WhatMasks(m, one) + "Scores of " + std::to_string(one.classes) +
      " classes are computed for all " + std::to_string(one.labels) +
      " labels; the product that makes them, the loss and their gradients "
      "take " +
      Milliseconds(ns * 1e-6) + " of the " + Milliseconds(m.step_ns() * 1e-6) +
      " step.";
  if (one.counted) {
    finding.assumption =
        "at best: these ops take as much less time as fewer labels are left";
  } else {
    finding.evidence +=
        one.how.padding
            ? " The mask says where a tensor has one value, as for padding; "
              "the recording does not show how much of a batch that is."
            : " The recording does not show how many labels are masked.";
    finding.assumption =
        "at best: nearly all labels are masked; (labels != " +
        std::to_string(one.number) +
        ").float().mean() is the share of this time that remains";
  }
  Advise(m, one, finding);
  return finding;
}

// Per steady step: the time of the ops, and what fewer labels save of it.
struct Cost {
  Edit edit = {};
  double ns = 0, saved_ns = 0;
};

Cost CostOfScores(const AnalysisContext& m, const std::vector<Ignored>& found) {
  const ForwardOps forward(m);
  std::vector<ShortenedOp> ops;
  Cost host;
  for (const Ignored& one : found) {
    // Include the pauses between ops, in which large tensors are freed.
    std::vector<Span> spans;
    for (RowId row : one.ops) {
      AppendWithNodes(m, row, 1 - one.share, ops);
      spans.push_back(forward.WithCall(forward.IndexOf(row)));
      for (RowId node : forward.NodesOf(row)) {
        spans.push_back(forward.WithEngine(node));
      }
    }
    const double ns = forward.NsOf(std::move(spans)) /
                      static_cast<double>(m.steps.steady.size());
    host.ns += ns;
    host.saved_ns += ns * one.share;
  }
  ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  if (m.has_gpu) return {std::move(all.edit), all.ns, all.saved_ns};
  host.edit = std::move(all.edit);
  return host;
}

Verdict CheckIgnoredLabels(const AnalysisContext& m) {
  const std::vector<Ignored> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  Cost cost = CostOfScores(m, found);
  if (cost.saved_ns * 1e-6 < MinReportableGainMs(m)) return Clean();
  const Ignored& largest = *std::ranges::max_element(
      found, {}, [](const Ignored& one) { return one.labels * one.classes; });
  return Fire(Found{.finding = Described(m, largest, cost.ns),
                    .bound_ns = cost.saved_ns,
                    .trials = {std::move(cost.edit)}});
}

constexpr Rule kRules[] = {
    {.id = "ignored-labels",
     .question =
         "Are scores computed for tokens whose labels the loss ignores?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckIgnoredLabels,
     .reference = "PyTorch documentation, torch.nn.functional.cross_entropy "
                  "(ignore_index): "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.nn.functional.cross_entropy.html",
     .detect =
         "in two thirds of the steps, masked_fill, where, an assignment under "
         "a mask or to a slice, or full sets integers, one for each label of "
         "aten::nll_loss_forward (or one more for each sequence), to a "
         "negative ignore_index; a matrix product makes the scores. A hint "
         "where the number is not negative or not recorded and no op looks up "
         "rows before that product, where the start of rows is set to a number "
         "that was not recorded, and where the mask compares with one value, "
         "as for padding",
     .avoid = "labels were masked before the step (in a data set, or by the "
              "workers of a loader): nothing in a recording tells that; the "
              "number is another one, as for masked inputs; rows of scores "
              "are summed up behind the product, as in a graph",
     .fix_cpp = "only rows whose label counts for the last layer and the loss",
     .fix_python = "head(x[labels != -100]); logits_to_keep in Hugging Face "
                   "Transformers"}};

}  // namespace
}  // namespace labels_rules

extern const std::span<const Rule> kLabels = labels_rules::kRules;

}  // namespace stepscope
