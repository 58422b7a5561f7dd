// Are batches padded to a length that none of them has, or to lengths that
// differ from step to step? Source: PyTorch documentation,
// torch.nn.utils.rnn.pad_sequence, which pads to the longest sequence of the
// batch.
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
#include "context/size_variation.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/padding_mask.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace padding_rules {
namespace {

// The most that the longest sample of a batch may fill of the padded length, as
// a mean over the steps. Rounding lengths up to a multiple of 64 or so, to suit
// kernels, leaves less padding.
constexpr double kMostFilled = 0.8;
constexpr char kChange[] = "padding to the longest of the batch";
// Layers before a CTC loss keep every second to eighth frame.
constexpr int64_t kMostStride = 8;
// With fewer batches, equal lengths may be chance.
constexpr size_t kStepsToVary = 4;

// The tensors that a step pads to one length.
struct Padded {
  size_t step = 0;
  RowId first = kNone;  // the first op on the full length
  RowId shows = kNone;  // the op that shows the lengths
  int64_t longest = 0;  // before padding
  int64_t samples = 0;
  bool stated = false;  // by the lengths that the loss takes
};

// Keyed by (length after padding, number of dimensions).
using ByLength = std::map<std::pair<int64_t, size_t>, std::vector<Padded>>;

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  ByLength Find() {
    for (const ForwardStep& step : m_.forward) {
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
        } else if (name == "ctc_loss") {
          ReadLengths(step, row);
        }
      }
    }
    return std::move(found_);
  }

 private:
  // F.pad.
  void Extends(size_t step, RowId row) {
    const Dims& from = DimsOf(m_.trace, row, 0);
    const std::optional<Dims> to = ResultDims(m_.trace, row);
    const std::vector<int64_t> pad = ListArgument(m_.trace, row, 1);
    if (!to) return;
    for (size_t i = 0; i + 1 < pad.size(); i += 2) {
      const size_t dim = from.size() - 1 - i / 2;
      // Padding at both ends is the border of a convolution.
      if (pad[i] > 0 && pad[i + 1] > 0) continue;
      Add(step, row, (*to)[dim], from.size(), from[dim],
          dim == 0 ? 1 : from[0]);
    }
  }

  // batch[i, :length] = sample, where `batch` is zeros(samples, most).
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

  // The loss is given the lengths of the samples: ctc_loss(scores, ...,
  // lengths).
  void ReadLengths(const ForwardStep& step, RowId loss) {
    const Dims& scores = DimsOf(m_.trace, loss, 0);
    if (scores.size() != 3 || ElementsIn(scores) <= 0) return;
    for (RowId row : m_.tree.inside(loss)) {
      if (!m_.trace.name(m_.trace.ops()[row].name).ends_with("_ctc_loss")) {
        continue;
      }
      const std::vector<int64_t> lengths = ListArgument(m_.trace, row, 2);
      if (lengths.empty()) continue;
      Add(step.step, step.ops.front(), scores[0], scores.size(),
          std::ranges::max(lengths), scores[1]);
      Padded& last = found_[{scores[0], scores.size()}].back();
      last.stated = true;
      last.shows = loss;
      return;
    }
  }

  void Add(size_t step, RowId row, int64_t length, size_t rank, int64_t longest,
           int64_t samples) {
    std::vector<Padded>& list = found_[{length, rank}];
    if (list.empty() || list.back().step != step)
      list.push_back({step, row, row});
    list.back().longest = std::max(list.back().longest, longest);
    list.back().samples += samples;
  }

  const AnalysisContext& m_;
  std::set<Dims> blank_;  // tensors of zeros in this step
  ByLength found_;
};

// Finds the ops after the padding that work on the full length, and how often
// the length is among the sizes of each.
class FullLength {
 public:
  // `strided`: multiples of the length count as well.
  FullLength(const AnalysisContext& context, int64_t length, bool strided)
      : m_(context), length_(length), strided_(strided) {}

  // Returns how often the full length is among the sizes that `row` takes.
  // Sizes that are a multiple of the length count, too, if they are rows of all
  // samples.
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
    const bool of_batch = samples > 1 && std::ranges::count(dims, samples) > 0;
    return static_cast<int>(std::ranges::count_if(dims, [&](int64_t size) {
      // Before strided layers, there are several frames per position.
      return size == length_ || (samples > 1 && size == samples * length_) ||
             (strided_ && of_batch && size % length_ == 0 &&
              size <= kMostStride * length_);
    }));
  }

  const AnalysisContext& m_;
  const int64_t length_;
  const bool strided_;
};

// Returns what is padded most, if it is padded to the same length in most
// steps.
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
    // If the longest sample has the same length in all steps, the model may
    // need that length.
    if (lengths.size() < 2 || sum > kMostFilled * full ||
        !AreMostSteps(m.steps, one.second.size())) {
      continue;
    }
    if (most == nullptr || one.first.first > most->first.first) most = &one;
  }
  return most;
}

// Adds the ops of the step after the padding, shortened to the longest sample.
void Shorten(const AnalysisContext& m, const ForwardStep& step,
             const Padded& padded, int64_t length,
             std::vector<ShortenedOp>& ops) {
  const FullLength full(m, length, padded.stated);
  const double filled =
      static_cast<double>(padded.longest) / static_cast<double>(length);
  for (RowId row : step.ops) {
    if (row < padded.first) continue;
    const int times = full.Times(row, padded.samples);
    if (times == 0 && (row != padded.first || padded.stated)) continue;
    // Attention scores have the length twice among their sizes, so their time
    // grows with its square.
    AppendWithNodes(m, row, times > 1 ? filled * filled : filled, ops);
  }
}

constexpr char kFixPython[] =
    "pad to the longest sample of the batch: "
    "torch.nn.utils.rnn.pad_sequence(samples, batch_first=True), "
    "padding=\"longest\" of a Hugging Face tokenizer; bucket samples of "
    "similar length";
constexpr char kFixCpp[] =
    "pad to the longest sample of the batch: "
    "torch::nn::utils::rnn::pad_sequence(samples, true)";
constexpr char kWrongIf[] =
    "the model needs this length, or a compiled model or a CUDA graph needs "
    "one length; then round up to a few lengths";

// Returns, for example, "aten::pad pads samples to a length of 512, and the
// longest sample".
std::string WhoPads(const AnalysisContext& m, const Padded& padded,
                    int64_t length) {
  const std::string to = "to a length of " + std::to_string(length);
  if (padded.stated) {
    return "Samples are padded " + to +
           ", and according to the lengths given to the CTC loss, the longest "
           "one";
  }
  return std::string(m.trace.name(m.trace.ops()[padded.shows].name)) +
         " pads samples " + to + ", and the longest sample";
}

Verdict FirePadded(const AnalysisContext& m,
                   const ByLength::value_type& found) {
  const int64_t length = found.first.first;
  std::vector<ShortenedOp> ops;
  int64_t shortest = length, longest = 0;
  double filled = 0;
  auto step = m.forward.begin();
  for (const Padded& padded : found.second) {
    while (step->step != padded.step) ++step;
    Shorten(m, *step, padded, length, ops);
    shortest = std::min(shortest, padded.longest);
    longest = std::max(longest, padded.longest);
    filled += static_cast<double>(padded.longest);
  }
  filled /=
      static_cast<double>(length) * static_cast<double>(found.second.size());
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Padded& first = found.second.front();
  Finding finding = FindingAbout(m, first.shows, first.shows, "the padding");
  finding.evidence = WhoPads(m, first, length) + " of a batch has " +
                     std::to_string(shortest) + " to " +
                     std::to_string(longest) + ", " + Percent(filled) +
                     " of it on average. The ops that work on the full "
                     "length " +
                     (first.stated ? "take " : "behind it take ") +
                     Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: each op takes as much less time as the batch is shorter, "
      "attention by the square of that";
  finding.fix_python = kFixPython;
  finding.fix_cpp = kFixCpp;
  finding.wrong_if = kWrongIf;
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

// An op in one step that takes a padding mask.
struct Masked {
  size_t step = 0;
  RowId row = kNone;
  Dims mask = {};
};

// Returns the first mask of each step, if the masks of all steps have the same
// sizes. If batches were padded to their longest sample, the sizes would vary.
std::vector<Masked> AlwaysMasked(const AnalysisContext& m) {
  std::vector<Masked> found;
  for (const ForwardStep& step : m.forward) {
    for (RowId row : step.ops) {
      const TensorShape mask = PaddingMask(m, row);
      // The mask of a loss, [batch, 1], is no mask of lengths.
      if (!mask.known() || mask.dims.back() == 1) continue;
      if (!found.empty() && found.back().mask != mask.dims) return {};
      found.push_back({step.step, row, mask.dims});
      break;
    }
  }
  return found;
}

// Asks for lengths, because masks show that something is padded but not how
// much.
Verdict AskForLengths(const AnalysisContext& m) {
  const std::vector<Masked> found = AlwaysMasked(m);
  if (found.size() < kStepsToVary || !RecursInMostSteps(m.steps, found)) {
    return Clean();
  }
  const Masked& first = found.front();
  const int64_t length = first.mask.back();
  std::vector<ShortenedOp> ops;
  auto step = m.forward.begin();
  for (const Masked& one : found) {
    while (step->step != one.step) ++step;
    Shorten(m, *step,
            {.step = one.step,
             .first = step->ops.front(),
             .longest = 1,
             .samples = one.mask.front(),
             .stated = true},
            length, ops);
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  Finding finding = FindingAbout(m, first.row, first.row, "the masked op");
  finding.confidence = Confidence::kHint;
  finding.evidence =
      "A mask of " + InBrackets(first.mask) +
      " shows that samples are padded, and all recorded batches have a length "
      "of " +
      std::to_string(length) +
      ", which hardly happens where each is padded to its longest sample. The "
      "recording does not show how much of it is padding. The ops that work "
      "on the full length take " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption = "at best: nearly all of each batch is padding";
  finding.fix_python = std::string(
                           "compare the longest sample of each batch, "
                           "mask.sum(-1).max(), with that length; ") +
                       kFixPython;
  finding.fix_cpp = std::string(
                        "compare the longest sample of each batch with "
                        "that length; ") +
                    kFixCpp;
  finding.wrong_if =
      "samples fill that length, for example because longer texts are cut to "
      "it";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = all.saved_ns,
                    .trials = {all.edit},
                    .at_most = FindingSeverity::kLow});
}

Verdict CheckPaddedToMaximum(const AnalysisContext& m) {
  const ByLength by_length = Finder(m).Find();
  const ByLength::value_type* found = MostPadded(m, by_length);
  return found != nullptr ? FirePadded(m, *found) : AskForLengths(m);
}

// True if the size of padding masks varies from step to step, which shows that
// samples are padded to the length of their batch.
bool PadsSamples(const AnalysisContext& m) {
  std::set<int64_t> sizes;
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    const TensorShape mask = PaddingMask(m, row);
    if (mask.known()) sizes.insert(ElementsOf(mask));
  }
  return sizes.size() > 1;
}

Verdict CheckUnevenLengths(const AnalysisContext& m) {
  if (!m.trace.watched(Kind::kOpShapes) && m.trace.op_inputs().empty()) {
    return Skip("the sizes of tensors were not recorded (record_shapes)");
  }
  const SizeVariation& sizes = m.sizes;
  if (sizes.what.empty()) return Clean();
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence = "Sizes vary from step to step: " + sizes.what +
                     ". The step time follows, from " +
                     Milliseconds(sizes.shortest_ns * 1e-6) + " to " +
                     Milliseconds(sizes.longest_ns * 1e-6) +
                     ": the sizes explain " + Percent(sizes.explained) +
                     " of the differences.";
  finding.where = sizes.what;
  const bool pads = PadsSamples(m);
  if (pads) {
    finding.evidence +=
        " Masks of such sizes show that samples are padded to the length of "
        "their batch; the recording does not show how much of each batch is "
        "padding.";
  }
  finding.assumption =
      pads ? "at best: nearly all of each batch is padding, so the time that "
             "grows with the sizes (" +
                 Milliseconds(sizes.grows_ns * 1e-6) +
                 " of the mean step) is saved"
           : "at best: all steps have the mean size and take the time that a "
             "parabola fitted to the recorded steps gives for it; no mask "
             "shows that samples of a batch are padded";
  finding.fix_cpp =
      "sort or bucket samples by length, so that a batch has samples of about "
      "one length and each batch the same number of elements";
  finding.fix_python =
      "bucket samples by length with a batch sampler that fills each batch to "
      "the same number of tokens; or pack them "
      "(torch.nn.utils.rnn.pack_padded_sequence, torch.nested)";
  finding.wrong_if = "the batches must keep their order";
  // Low at most: if single long samples already cost more than in proportion,
  // batches of similar lengths save only padding, which is not recorded.
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = pads ? sizes.grows_ns : sizes.bend_ns,
                    .baseline_ms = sizes.mean_ns * 1e-6,
                    .beyond_noise = true,
                    .at_most = FindingSeverity::kLow});
}

constexpr Rule kRules[] = {
    {.id = "uneven-lengths",
     .question = "Do batches of uneven lengths make steps of uneven lengths?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute},
     .check = &CheckUnevenLengths,
     .reference = "PyTorch Performance Tuning Guide: Pre-allocate memory in "
                  "case of variable input length",
     .detect =
         "of at least 5 steps with known sizes, a quarter has inputs 10 % "
         "larger or smaller than the median, and the sizes explain 80 % of the "
         "variance of the step times. The gain is what long steps cost beyond "
         "proportion to their size, as attention does; if masks show that "
         "samples are padded, it is all time that grows with the sizes",
     .avoid = "sizes were not recorded, a single batch is shorter, or the step "
              "time does not follow the sizes",
     .fix_cpp = "bucket samples by length; the same number of elements in "
                "every batch",
     .fix_python = "bucket samples by length; pack_padded_sequence or nested "
                   "tensors"},
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
         "of zeros, or a CTC loss is given lengths; their own lengths vary, "
         "and "
         "the longest of a batch has at most 80 % of that length on average. A "
         "hint that is low at most: at least four steps mask padding, all with "
         "masks of the same sizes",
     .avoid = "no op pads, no loss is given lengths, and no mask has the sizes "
              "of a batch: then nothing in a recording tells padding from data",
     .fix_cpp = "torch::nn::utils::rnn::pad_sequence",
     .fix_python = "torch.nn.utils.rnn.pad_sequence, padding=\"longest\""}};

}  // namespace
}  // namespace padding_rules

extern const std::span<const Rule> kPadding = padding_rules::kRules;

}  // namespace stepscope
