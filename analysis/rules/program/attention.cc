// Is attention computed in separate ops although one fused kernel could do it?
// Source: the documentation of torch.nn.functional.scaled_dot_product_attention
// (its backends, and what each of them supports).
#include <stepscope/device_peaks.h>
#include <stepscope/op_cost.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "context/rule.h"
#include "evidence/attention/flash_products.h"
#include "evidence/attention/written_attention.h"
#include "evidence/call_site.h"
#include "evidence/program/merged_calls.h"
#include "evidence/program/shortened_ops.h"
#include "ops/backward_nodes.h"
#include "ops/contains.h"
#include "ops/intervals.h"
#include "ops/op_arguments.h"
#include "ops/op_traits.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace attention_rules {
namespace {

// A fused backward pass recomputes the scores, so it has five products, not
// four.
constexpr double kProductsAgain = 0.25;
constexpr char kChange[] = "fused attention";

// Returns the share of the products that a fused kernel computes. On a CPU,
// less was gained than even without skipping.
double ProductsLeft(const AnalysisContext& m, const WrittenAttention& one) {
  if (!m.has_gpu || !one.causal || one.dims.empty()) return 1;
  return CausalShare(static_cast<double>(one.dims.back()));
}

// False if scaled_dot_product_attention would run the same separate ops: its
// fused kernel for the CPU supports neither dropout nor a mask that needs a
// gradient, and those for the GPU do not support float64.
bool HasFusedKernel(const AnalysisContext& m, const WrittenAttention& one) {
  if (!m.has_gpu) return !one.drops && !one.trains_mask;
  return CostOf(m.trace, one.scores).precision != Precision::kFp64;
}

// True if the fallback got tensors in 16 bits and computes in float32, as it
// does since torch 2.5.
bool CastsUp(const AnalysisContext& m, const WrittenAttention& one) {
  return one.fallback != kNone &&
         CostOf(m.trace, one.scores).precision == Precision::kFp32 &&
         IsAnyOf(m.trace.name(TensorArgument(m.trace, one.fallback, 0).type),
                 {"c10::Half", "c10::BFloat16"});
}

struct FusedKernels {
  ShortenedOps change;
  double between_ns = 0;   // per step: ops that disappear
  double products_ns = 0;  // per step: products that become faster
};
FusedKernels Fused(const AnalysisContext& m,
                   const std::vector<WrittenAttention>& all) {
  const FlashProducts flash(m);
  std::vector<ShortenedOp> products, nodes, between, ops;
  for (const WrittenAttention& one : all) {
    const double computed = ProductsLeft(m, one);
    const bool in_16_bits = CastsUp(m, one);
    for (RowId row : one.backward_products) {
      const double left = flash.Left(row, computed, in_16_bits);
      products.push_back({row, left});
      if (left < 1) ops.push_back({row, left});
    }
    for (RowId row : one.backward) nodes.push_back({row, 0});
    for (RowId row : {one.scores, one.values}) {
      const double left = flash.Left(row, computed, in_16_bits);
      if (left < 1) ops.push_back({row, left});
    }
  }
  const ShortenedOps computed = ShortenOps(m, std::move(products), kChange);
  const double again = kProductsAgain * (computed.ns - computed.saved_ns);
  const double backward = ShortenOps(m, nodes, kChange).ns;
  // Spread the time in which backward recomputes the scores over its nodes,
  // because an edit can only shorten ops by shares.
  for (ShortenedOp& node : nodes) {
    node.left = backward > 0 ? std::min(1.0, again / backward) : 0;
  }
  for (const WrittenAttention& one : all) {
    for (RowId row : one.between) between.push_back({row, 0});
  }
  between.insert(between.end(), nodes.begin(), nodes.end());
  const double faster = ShortenOps(m, ops, kChange).ns;
  ops.insert(ops.end(), between.begin(), between.end());
  return {ShortenOps(m, std::move(ops), kChange),
          ShortenOps(m, std::move(between), kChange).ns, faster};
}

// Returns the one that takes most time, or the first if sizes are unknown.
const WrittenAttention& Largest(const std::vector<WrittenAttention>& all) {
  return *std::ranges::max_element(all, {}, &WrittenAttention::score_bytes);
}

std::string Sizes(const WrittenAttention& one) {
  if (one.dims.empty()) return "";
  return ", scores of " + InBrackets(one.dims) + ", " + Bytes(one.score_bytes);
}

void Illustrate(const AnalysisContext& m,
                const std::vector<WrittenAttention>& all, Finding& finding) {
  for (size_t i = 0; i < std::min<size_t>(3, all.size()); ++i) {
    const Op& first = m.trace.ops()[all[i].scores];
    const Op& last = m.trace.ops()[all[i].values];
    const size_t step = SteadyStepAt(m.steps, first.begin_ns);
    finding.examples.push_back({m.steps.windows[step].number, first.begin_ns,
                                last.end_ns, all[i].chain});
  }
  const WrittenAttention& one = Largest(all);
  const Op& softmax = m.trace.ops()[one.softmax];
  finding.where =
      CallSites(m.trace).Place(softmax.thread, softmax.begin_ns, one.softmax);
}

void SayFix(const AnalysisContext& m, const WrittenAttention& one,
            Finding& finding) {
  if (one.fallback != kNone) {
    finding.fix_python =
        "call it under torch.nn.attention.sdpa_kernel([SDPBackend."
        "FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]): it then warns why "
        "no fused kernel fits (the type, the width of a head, a mask that "
        "needs a gradient)";
    finding.fix_cpp =
        "at::globalContext().setSDPUseMath(false) for one call: the error "
        "then says why no fused kernel fits (the type, the width of a head, a "
        "mask that needs a gradient)";
    return;
  }
  if (one.trains_mask) {
    finding.fix_python =
        "torch.nn.functional.scaled_dot_product_attention(q, k, v, "
        "attn_mask=bias): the memory-efficient kernel computes the gradient "
        "of the bias, too; or flex_attention with the bias in its score_mod";
    finding.fix_cpp =
        "at::scaled_dot_product_attention(q, k, v, bias): the "
        "memory-efficient kernel computes the gradient of the bias, too";
    return;
  }
  // PyTorch's flash kernel needs Ampere or later, as bfloat16 does.
  const std::string halves =
      m.has_gpu && HasBf16(m.kernels.device) &&
              !Is16Bit(CostOf(m.trace, one.scores).precision)
          ? "; in bfloat16 its flash kernel can be used, too"
          : "";
  finding.fix_python =
      "torch.nn.functional.scaled_dot_product_attention(q, k, v), with "
      "is_causal=True in place of a causal mask; for nn.MultiheadAttention, "
      "call it with need_weights=False" +
      halves;
  finding.fix_cpp =
      "at::scaled_dot_product_attention(q, k, v), with is_causal = true in "
      "place of a causal mask" +
      halves;
}

// Returns the outermost ops of `thread` that start in `span`, in time order.
std::vector<RowId> OutermostIn(const AnalysisContext& m, RowId thread,
                               Span span) {
  std::vector<RowId> rows;
  for (RowId row : m.tree.of_thread(thread, span)) {
    if (m.trace.ops()[row].parent == kNone) rows.push_back(row);
  }
  return rows;
}

// True if `b` may be the next head after `a` in the same attention: only
// projections lie between them.
bool IsNextHead(const AnalysisContext& m, const WrittenAttention& a,
                const WrittenAttention& b) {
  const Op& last = m.trace.ops()[OutermostOf(m.trace, a.values)];
  const Op& next = m.trace.ops()[OutermostOf(m.trace, b.scores)];
  if (a.dims.empty() || a.dims != b.dims || last.thread != next.thread ||
      last.end_ns > next.begin_ns ||
      SteadyStepAt(m.steps, last.begin_ns) !=
          SteadyStepAt(m.steps, next.begin_ns)) {
    return false;
  }
  return std::ranges::all_of(
      OutermostIn(m, last.thread, {last.end_ns, next.begin_ns}),
      [&](RowId row) {
        const OpTraits& traits = m.tree.traits(row);
        return traits.bookkeeping ||
               (traits.matmul && !m.tree.in_backward(row));
      });
}

// Heads that run one after the other, in one step.
struct Heads {
  size_t step = 0;
  double count = 0;
  std::vector<RowId> ops = {};  // outermost, from the first head to the last
};
std::vector<Heads> HeadsOneByOne(const AnalysisContext& m,
                                 const std::vector<WrittenAttention>& all) {
  std::vector<Heads> found;
  for (size_t i = 0; i < all.size();) {
    size_t last = i;
    while (last + 1 < all.size() && IsNextHead(m, all[last], all[last + 1])) {
      ++last;
    }
    if (last > i) {
      const Op& begin = m.trace.ops()[OutermostOf(m.trace, all[i].scores)];
      const Op& end = m.trace.ops()[all[last].values];
      found.push_back(
          {.step = SteadyStepAt(m.steps, begin.begin_ns),
           .count = static_cast<double>(last - i + 1),
           .ops = OutermostIn(m, begin.thread, {begin.begin_ns, end.end_ns})});
    }
    i = last + 1;
  }
  return found;
}

// Adds the heads to the finding, and returns the most that one call for all
// heads gains. `fused_ns`: time of the ops between the products.
double TellHeads(const AnalysisContext& m, const std::vector<Heads>& rows,
                 double fused_ns, Finding& finding) {
  MergedCalls merged(m);
  double heads = 0;
  for (const Heads& row : rows) {
    heads += row.count;
    for (RowId op : row.ops) merged.Add(op, row.count);
  }
  const MergedCalls::Sum sum = merged.Total(kChange);
  finding.evidence +=
      " The heads run one after the other, " +
      MeanCount(heads / static_cast<double>(rows.size()), "head") +
      " in a row; with their products this takes " +
      Milliseconds(sum.ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: one call for all heads computes its products at the best rate, "
      "and needs none of the ops between";
  finding.fix_python =
      "compute all heads at once: q, k, v = qkv(x).unflatten(-1, (3, heads, "
      "-1)).permute(2, 0, 3, 1, 4), with one nn.Linear(width, 3 * width) for "
      "qkv; then F.scaled_dot_product_attention(q, k, v, is_causal=True)"
      ".transpose(1, 2).flatten(2)";
  finding.fix_cpp =
      "compute all heads at once: one linear layer for q, k and v of all "
      "heads, views of [batch, heads, length, width of a head], and "
      "at::scaled_dot_product_attention(q, k, v)";
  return std::min(sum.bound_ns + fused_ns, sum.ns);
}

Verdict CheckAttentionByHand(const AnalysisContext& m) {
  std::vector<WrittenAttention> all = FindWrittenAttention(m);
  std::erase_if(all, [&](const WrittenAttention& one) {
    return !HasFusedKernel(m, one);
  });
  if (all.empty()) return Clean();
  const FusedKernels kernels = Fused(m, all);
  const ShortenedOps& fused = kernels.change;
  if (fused.saved_ns <= 0) return Clean();
  const WrittenAttention& one = Largest(all);
  const double per_step = static_cast<double>(all.size()) /
                          static_cast<double>(m.steps.steady.size());
  Finding finding;
  finding.confidence =
      one.dims.empty() ? Confidence::kHint : Confidence::kStrong;
  const std::string calls =
      Count(std::max<int64_t>(1, std::llround(per_step)), "time") + " per step";
  finding.evidence =
      (one.fallback != kNone
           ? "scaled_dot_product_attention falls back to single ops " + calls +
                 " (_scaled_dot_product_attention_math: "
           : "Attention is computed in single ops " + calls + " (") +
      one.chain + Sizes(one) + "). The ops " +
      (one.fallback != kNone ? "beside" : "between") + " the two products" +
      (one.backward.empty() ? " take " : ", and their gradients, take ") +
      Milliseconds(kernels.between_ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) +
      " step; a fused kernel keeps the scores in registers and needs none of "
      "them.";
  if (kernels.products_ns > 0) {
    finding.evidence += " It also makes the products faster, which take " +
                        Milliseconds(kernels.products_ns * 1e-6) + ".";
  }
  if (one.dims.empty()) {
    finding.evidence +=
        " Sizes were not recorded (record_shapes), so only the order of the "
        "ops shows this.";
  }
  Illustrate(m, all, finding);
  finding.assumption =
      "the fused kernel takes as long as the two products" +
      std::string(m.has_gpu && m.kernels.peaks.exact &&
                          (CastsUp(m, one) ||
                           Is16Bit(CostOf(m.trace, one.scores).precision))
                      ? ", or, if that is shorter, as at the rate of "
                        "FlashAttention-2"
                      : "") +
      std::string(one.backward.empty()
                      ? ""
                      : ", and its backward pass as long as five products in "
                        "place of four") +
      (m.has_gpu && one.causal
           ? "; it leaves out what the mask hides, half of the scores"
           : "");
  SayFix(m, one, finding);
  finding.wrong_if =
      "the program uses the attention weights themselves, or the operands of "
      "the products are not q, k and v";
  if (m.has_gpu && one.causal)
    finding.wrong_if += "; or the mask is not a causal one";
  const std::vector<Heads> rows = HeadsOneByOne(m, all);
  if (RecursInMostSteps(m.steps, rows)) {
    const double most_ns = TellHeads(m, rows, fused.saved_ns, finding);
    return FireBound(std::move(finding), most_ns);
  }
  return Fire(std::move(finding), fused.edit, fused.saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "attention-by-hand",
     .question = "Is attention computed in single ops where one fused kernel "
                 "could do it?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckAttentionByHand,
     .reference = "torch.nn.functional.scaled_dot_product_attention: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.nn.functional.scaled_dot_product_attention.html",
     .detect = "a batched product, ops that scale and mask its result, "
               "softmax, perhaps dropout, and a second batched product follow "
               "each other, and sizes, where recorded, show one score per pair "
               "of positions (products of two matrices without a layer's "
               "weight, for one head of one sample, count if they make square "
               "scores); or scaled_dot_product_attention runs its "
               "fallback of single ops. If such chains follow each other with "
               "nothing but projections between, they are heads that run one "
               "by one, and the gain is an upper bound",
     .avoid = "scaled_dot_product_attention cannot express one of the ops "
              "between the products, or no fused kernel exists (dropout or a "
              "trained mask on a CPU, float64 on a GPU)",
     .fix_cpp = "at::scaled_dot_product_attention(q, k, v)",
     .fix_python =
         "torch.nn.functional.scaled_dot_product_attention(q, k, v)"}};

}  // namespace
}  // namespace attention_rules

extern const std::span<const Rule> kAttention = attention_rules::kRules;

}  // namespace stepscope
