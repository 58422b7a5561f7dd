// Are batches padded to a length that none of them has?
// Source: PyTorch documentation, torch.nn.utils.rnn.pad_sequence: pads to the
// longest sequence of the batch.
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
#include "evidence/program/backward_nodes.h"
#include "evidence/program/forward_steps.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace padding_rules {
namespace {

// A batch's longest sample has this share of the length at most, in the mean
// over the steps. Lengths that are rounded up to a multiple of 64 or the like,
// for the sake of kernels, leave less.
constexpr double kMostFilled = 0.8;
constexpr char kChange[] = "padding to the longest of the batch";

// The tensors that a step pads to one length.
struct Padded {
  size_t step = 0;
  RowId first = kNone;  // the op that pads
  int64_t longest = 0;  // before
  int64_t samples = 0;
};

// By the length after, and the number of dimensions.
using ByLength = std::map<std::pair<int64_t, size_t>, std::vector<Padded>>;

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  ByLength Find(const std::vector<ForwardStep>& steps) {
    for (const ForwardStep& step : steps) {
      blank_.clear();
      for (size_t i = 0; i < step.ops.size(); ++i) {
        const RowId row = step.ops[i];
        const std::string_view name = PlainNameOf(m_.trace, row);
        if (IsAnyOf(name, {"pad", "constant_pad_nd"})) {
          Extends(step.step, row);
        } else if (IsAnyOf(name, {"zeros", "full"})) {
          blank_.insert(ListArgument(m_.trace, row, 0));
        } else if (IsAnyOf(name, {"new_zeros", "new_full"})) {
          blank_.insert(ListArgument(m_.trace, row, 1));
        } else if (name == "copy" && i > 0) {
          Writes(step.step, step.ops[i - 1], row);
        }
      }
    }
    return std::move(found_);
  }

 private:
  // F.pad
  void Extends(size_t step, RowId row) {
    const Dims& from = DimsOf(m_.trace, row, 0);
    const std::optional<Dims> to = ResultDims(m_.trace, row);
    const std::vector<int64_t> pad = ListArgument(m_.trace, row, 1);
    if (!to) return;
    for (size_t i = 0; i + 1 < pad.size(); i += 2) {
      const size_t dim = from.size() - 1 - i / 2;
      // At one end only; else it is the border of a convolution.
      if (pad[i] > 0 && pad[i + 1] > 0) continue;
      Add(step, row, (*to)[dim], from.size(), from[dim],
          dim == 0 ? 1 : from[0]);
    }
  }

  // batch[i, :length] = sample, where `batch` is zeros(samples, most)
  void Writes(size_t step, RowId slice, RowId copy) {
    if (PlainNameOf(m_.trace, slice) != "slice") return;
    const Dims& row = DimsOf(m_.trace, slice, 0);
    const Dims& part = DimsOf(m_.trace, copy, 0);
    const std::optional<size_t> dim =
        DimArgument(m_.trace, slice, 1, row.size());
    if (!dim || part.size() != row.size() ||
        std::ranges::none_of(blank_, [&](const Dims& one) {
          return one.size() == row.size() + 1 &&
                 std::equal(row.begin(), row.end(), one.begin() + 1);
        })) {
      return;
    }
    Add(step, copy, row[*dim], row.size() + 1, part[*dim], 1);
  }

  void Add(size_t step, RowId row, int64_t length, size_t rank, int64_t longest,
           int64_t samples) {
    std::vector<Padded>& list = found_[{length, rank}];
    if (list.empty() || list.back().step != step) list.push_back({step, row});
    list.back().longest = std::max(list.back().longest, longest);
    list.back().samples += samples;
  }

  const AnalysisContext& m_;
  std::set<Dims> blank_;  // tensors of zeros in this step
  ByLength found_;
};

// The ops of the steps behind the padding that work on the full length: of
// each, how often it is among its sizes.
class FullLength {
 public:
  FullLength(const AnalysisContext& context, int64_t length)
      : m_(context), length_(length) {}

  // 0: not at all. Sizes that are a product with the length count, too: rows of
  // all samples.
  int Times(RowId row, int64_t samples) const {
    const RowId inputs = m_.trace.ops()[row].inputs;
    if (inputs == kNone) return 0;
    int most = 0;
    for (const Argument& one : m_.trace.op_inputs()[inputs].arguments) {
      most = std::max(most, In(one.dims, samples));
      for (const Argument& element : one.elements) {
        most = std::max(most, In(element.dims, samples));
      }
    }
    const std::string_view name = m_.trace.name(m_.trace.ops()[row].name);
    return most > 0 && Contains(name, "attention") ? 2 : most;
  }

 private:
  int In(const Dims& dims, int64_t samples) const {
    return static_cast<int>(std::ranges::count_if(dims, [&](int64_t size) {
      return size == length_ || (samples > 1 && size == samples * length_);
    }));
  }

  const AnalysisContext& m_;
  const int64_t length_;
};

// What is padded most, if it is padded to one length in most steps.
const ByLength::value_type* MostPadded(const AnalysisContext& m,
                                       const ByLength& found) {
  const ByLength::value_type* most = nullptr;
  for (const ByLength::value_type& one : found) {
    std::set<int64_t> lengths;
    double sum = 0;
    for (const Padded& padded : one.second) {
      lengths.insert(padded.longest);
      sum += static_cast<double>(padded.longest);
    }
    const double count = static_cast<double>(one.second.size());
    const double full = count * static_cast<double>(one.first.first);
    if (lengths.size() < 2 || sum > kMostFilled * full ||
        !AreMostSteps(m.steps, one.second.size())) {
      continue;
    }
    if (most == nullptr || one.first.first > most->first.first) most = &one;
  }
  return most;
}

// The ops of the step behind the padding, shortened to the longest sample.
void Shorten(const AnalysisContext& m, const BackwardNodes& nodes,
             const ForwardStep& step, const Padded& padded, int64_t length,
             std::vector<ShortenedOp>& ops) {
  const FullLength full(m, length);
  const double filled =
      static_cast<double>(padded.longest) / static_cast<double>(length);
  for (RowId row : step.ops) {
    if (row < padded.first) continue;
    const int times = full.Times(row, padded.samples);
    if (times == 0 && row != padded.first) continue;
    AppendWithNodes(m, nodes, row, times > 1 ? filled * filled : filled, ops);
  }
}

Verdict CheckPaddedToMaximum(const AnalysisContext& m) {
  const std::vector<ForwardStep> steps = ForwardSteps(m);
  const ByLength by_length = Finder(m).Find(steps);
  const ByLength::value_type* found = MostPadded(m, by_length);
  if (found == nullptr) return Clean();
  const int64_t length = found->first.first;
  const BackwardNodes nodes(m.trace);
  std::vector<ShortenedOp> ops;
  int64_t shortest = length, longest = 0;
  double filled = 0;
  auto step = steps.begin();
  for (const Padded& padded : found->second) {
    while (step->step != padded.step) ++step;
    Shorten(m, nodes, *step, padded, length, ops);
    shortest = std::min(shortest, padded.longest);
    longest = std::max(longest, padded.longest);
    filled += static_cast<double>(padded.longest);
  }
  filled /=
      static_cast<double>(length) * static_cast<double>(found->second.size());
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Padded& first = found->second.front();
  const Op& op = m.trace.ops()[first.first];
  Finding finding = FindingAbout(m, first.first, first.first, "the padding");
  finding.evidence = std::string(m.trace.name(op.name)) +
                     " pads samples to a length of " + std::to_string(length) +
                     ", and the longest sample of a batch has " +
                     std::to_string(shortest) + " to " +
                     std::to_string(longest) + ", " + Percent(filled) +
                     " of it on average. The ops that work on the full "
                     "length behind it take " +
                     Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: each op takes as much less time as the batch is shorter, "
      "attention by the square of that";
  finding.fix_python =
      "pad to the longest sample of the batch: "
      "torch.nn.utils.rnn.pad_sequence(samples, batch_first=True), "
      "padding=\"longest\" of a Hugging Face tokenizer; bucket samples of "
      "similar length";
  finding.fix_cpp =
      "pad to the longest sample of the batch: "
      "torch::nn::utils::rnn::pad_sequence(samples, true)";
  finding.wrong_if =
      "the model needs this length, or a compiled model or a CUDA graph needs "
      "one length; then round up to a few lengths";
  return FireBound(std::move(finding), all.saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "padded-to-maximum",
     .question = "Are batches padded to a length that none of them has?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckPaddedToMaximum,
     .reference = "PyTorch documentation, torch.nn.utils.rnn.pad_sequence: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.nn.utils.rnn.pad_sequence.html",
     .detect =
         "in two thirds of the steps, aten::pad extends samples or batches to "
         "one length at one end, or samples are copied into slices of a tensor "
         "of zeros; their own lengths vary, and the longest of a batch has at "
         "most 80 % of that length on average",
     .avoid = "the padding was done before the step (by a tokenizer or in the "
              "data set): nothing in a recording tells it from data",
     .fix_cpp = "torch::nn::utils::rnn::pad_sequence",
     .fix_python = "torch.nn.utils.rnn.pad_sequence, padding=\"longest\""}};

}  // namespace
}  // namespace padding_rules

extern const std::span<const Rule> kPadding = padding_rules::kRules;

}  // namespace stepscope
