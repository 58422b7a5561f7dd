// Do batches of uneven lengths make steps of uneven lengths?
#include <cstdint>
#include <set>

#include "context/rule.h"
#include "context/size_variation.h"
#include "evidence/program/padding_mask.h"
#include "ops/op_arguments.h"
#include "words/quantities.h"

namespace stepscope {
namespace lengths_rules {
namespace {

// True if the size of masks of padding varies from step to step: so samples are
// padded to the length of the batch.
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
  // Low at most: where single long samples already cost more than in
  // proportion, batches of similar lengths save only padding, which is not
  // recorded.
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
                   "tensors"}};

}  // namespace
}  // namespace lengths_rules

extern const std::span<const Rule> kLengths = lengths_rules::kRules;

}  // namespace stepscope
