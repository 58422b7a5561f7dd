// Does a mask keep attention from PyTorch's flash kernel? Source: the
// documentation of torch.nn.functional.scaled_dot_product_attention: the flash
// kernel takes no attn_mask, the memory-efficient one does.
#include <stepscope/device_peaks.h>
#include <stepscope/op_cost.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/attention/flash_products.h"
#include "evidence/call_site.h"
#include "evidence/program/shortened_ops.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace attention_masks_rules {
namespace {

constexpr char kChange[] = "attention without a mask, in the flash kernel";
constexpr std::string_view kEfficient =
    "aten::_scaled_dot_product_efficient_attention";
// The flash kernel takes heads of at most this width.
constexpr int64_t kWidestHead = 256;
// What is left of a call without sizes: half of the scores, at twice the speed,
// since FlashAttention-2 is about twice as fast as kernels of the generation of
// the memory-efficient one (arxiv.org/abs/2307.08691).
constexpr double kUnsizedLeft = 0.25;

// A call of the memory-efficient kernel with a mask of all pairs of positions.
struct MaskedCall {
  size_t step = 0;
  RowId op = kNone;
  int64_t length = 0;  // of the sequence; 0: sizes were not recorded
  TensorShape mask = {};
};

// True if the mask has a value for each pair of positions: [..., length,
// length]. Others hide padding, and the flash kernel has no replacement.
bool IsOfPairs(const TensorShape& mask, int64_t length) {
  const size_t count = mask.dims.size();
  return mask.known() && count >= 2 && mask.dims[count - 1] == length &&
         mask.dims[count - 2] == length;
}

// True if kernels of 16 bits run inside `op`, so that the flash kernel would
// take its arguments.
bool RunsIn16Bits(const AnalysisContext& m, RowId op) {
  const Span span{m.trace.ops()[op].begin_ns, m.trace.ops()[op].end_ns};
  for (const KernelUse& use : m.kernels.uses) {
    if (!Is16Bit(use.precision)) continue;
    const RowId launched_by = m.trace.kernels()[use.kernel].op;
    if (launched_by == kNone) continue;
    const Op& inner = m.trace.ops()[launched_by];
    if (inner.thread == m.trace.ops()[op].thread &&
        inner.begin_ns >= span.begin_ns && inner.end_ns <= span.end_ns) {
      return true;
    }
  }
  return false;
}

std::vector<MaskedCall> FindMaskedCalls(const AnalysisContext& m) {
  std::vector<MaskedCall> found;
  bool known_16_bits = false;
  for (RowId row : m.tree.named(kEfficient)) {
    const Op& op = m.trace.ops()[row];
    const size_t step = SteadyStepAt(m.steps, op.begin_ns);
    if (step == m.steps.windows.size()) continue;
    if (op.inputs == kNone) {
      known_16_bits = known_16_bits || RunsIn16Bits(m, row);
      if (known_16_bits) found.push_back({.step = step, .op = row});
      continue;
    }
    const TensorShape query = TensorArgument(m.trace, row, 0),
                      key = TensorArgument(m.trace, row, 1),
                      mask = TensorArgument(m.trace, row, 3);
    if (query.dims.size() != 4 || key.dims.size() != 4 ||
        !Is16Bit(PrecisionOfType(m.trace.name(query.type)))) {
      continue;
    }
    const int64_t length = query.dims[2];
    if (key.dims[2] == length && query.dims[3] <= kWidestHead &&
        IsOfPairs(mask, length)) {
      found.push_back({step, row, length, mask});
    }
  }
  return found;
}

// Returns the calls and the ops of their backward pass, with the share of each
// that is left in the flash kernel.
std::vector<ShortenedOp> InFlashKernel(const AnalysisContext& m,
                                       const std::vector<MaskedCall>& calls) {
  const FlashProducts flash(m);
  std::vector<ShortenedOp> ops;
  for (const MaskedCall& call : calls) {
    const auto left = [&](RowId row) {
      return call.length == 0
                 ? kUnsizedLeft
                 : flash.Left(row,
                              CausalShare(static_cast<double>(call.length)));
    };
    ops.push_back({call.op, left(call.op)});
    for (const RowId node :
         m.backward.Of(m.trace.ops()[OutermostOf(m.trace, call.op)])) {
      for (const RowId row : m.tree.inside(node)) {
        if (m.trace.name(m.trace.ops()[row].name)
                .starts_with("aten::_scaled_dot_product_efficient_attention_"
                             "backward")) {
          ops.push_back({row, left(row)});
        }
      }
    }
  }
  return ops;
}

Verdict CheckAttentionMask(const AnalysisContext& m) {
  // Flash kernels exist for the devices that have bfloat16.
  if (!HasBf16(m.kernels.device)) return Clean();
  const std::vector<MaskedCall> calls = FindMaskedCalls(m);
  if (!RecursInMostSteps(m.steps, calls)) return Clean();
  const ShortenedOps all = ShortenOps(m, InFlashKernel(m, calls), kChange);
  if (all.saved_ns * 1e-6 < MinReportableGainMs(m)) return Clean();
  const MaskedCall& first = calls.front();
  const Op& op = m.trace.ops()[first.op];
  const double per_step = static_cast<double>(calls.size()) /
                          static_cast<double>(m.steps.steady.size());
  Finding finding;
  finding.confidence = Confidence::kHint;
  finding.where = CallSites(m.trace).Place(op.thread, op.begin_ns, first.op);
  finding.examples.push_back({m.steps.windows[first.step].number, op.begin_ns,
                              op.end_ns, OpWithShapes(m.trace, first.op)});
  finding.evidence =
      "scaled_dot_product_attention runs PyTorch's memory-efficient kernel " +
      Count(std::max<int64_t>(1, std::llround(per_step)), "time") +
      " per step, " +
      (first.length > 0
           ? "because it gets a mask of " + InBrackets(first.mask.dims)
           : "probably because it gets a mask (its sizes were not recorded)") +
      "; this takes " + Milliseconds(all.ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) +
      " step, with its backward pass. The flash kernel takes no mask, but "
      "skips "
      "what is_causal hides, half of the scores.";
  finding.assumption =
      "the mask is causal, and the flash kernel runs at the rate of "
      "FlashAttention-2";
  finding.fix_cpp =
      "at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true) "
      "in place of a causal mask; no mask where no sample is padded";
  finding.fix_python =
      "F.scaled_dot_product_attention(q, k, v, is_causal=True) in place of a "
      "causal mask, and no mask where no sample is padded; transformers: "
      "attn_implementation=\"flash_attention_2\" for padded batches; for other "
      "masks: torch.nn.attention.flex_attention with a block mask";
  finding.wrong_if =
      "the mask is not causal, such as a learned bias or a window, or the "
      "flash kernel is missing for another reason (torch.nn.attention."
      "sdpa_kernel(SDPBackend.FLASH_ATTENTION) warns why)";
  return first.length == 0
             ? FireBound(std::move(finding), all.saved_ns, all.edit)
             : Fire(std::move(finding), all.edit, all.saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "attention-mask",
     .question = "Does a mask keep attention from the flash kernel?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute},
     .check = &CheckAttentionMask,
     .reference = "torch.nn.functional.scaled_dot_product_attention: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.nn.functional.scaled_dot_product_attention.html",
     .detect = "scaled_dot_product_attention chose the memory-efficient kernel "
               "on 16-bit tensors, on a device with a flash kernel, and its "
               "mask has one value for each pair of positions (or sizes were "
               "not recorded)",
     .avoid = "the mask only hides padding ([batch, 1, 1, keys]), heads are "
              "wider than 256, queries and keys differ in length, or the "
              "tensors are float32, which the flash kernel does not take",
     .fix_cpp = "is_causal = true in place of a causal mask",
     .fix_python = "is_causal=True in place of a causal mask, "
                   "flex_attention for others"}};

}  // namespace
}  // namespace attention_masks_rules

extern const std::span<const Rule> kAttentionMasks =
    attention_masks_rules::kRules;

}  // namespace stepscope
