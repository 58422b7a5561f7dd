// Do 16-bit products run slowly because the CPU has no instructions for them?
// Source: PyTorch documentation, Automatic Mixed Precision, on CPUs: without
// AMX, AVX512_BF16 or AVX512_FP16 a product in 16 bits converts or falls back
// to plain loops.
#include <stepscope/op_cost.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/program/forward_steps.h"
#include "evidence/program/shortened_ops.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace half_products_rules {
namespace {

// Operations per ns of one core in a large 32-bit product: half of the 32 per
// cycle that a core with AVX2 can do at 3 GHz.
constexpr double kUsualFlopsPerNs = 50;
// Small or narrow products reach a tenth of that in any type, plain loops a
// fiftieth.
constexpr double kSlowFlopsPerNs = kUsualFlopsPerNs / 16;
// The peak of a core with AVX-512 at 3 GHz, for the bound.
constexpr double kPeakFlopsPerNs = 192;
// Below, calling the op takes as long.
constexpr double kLeastFlops = 1e6;
constexpr char kChange[] = "products in float32";

struct HalfOp {
  size_t step = 0;
  RowId row = kNone;
  double flops = 0, ns = 0;
  bool is_slow() const { return flops <= kSlowFlopsPerNs * ns; }
};

// The products of the steady steps in 16 bits.
std::vector<HalfOp> HalfOps(const AnalysisContext& m) {
  std::vector<HalfOp> found;
  const std::span<const Op> ops = m.trace.ops();
  for (RowId row = 0; row < ops.size(); ++row) {
    if (!m.tree.traits(row).matmul || !m.tree.computes(row)) continue;
    const OpCost cost = CostOf(m.trace, row);
    const auto ns = static_cast<double>(ops[row].end_ns - ops[row].begin_ns);
    if ((cost.precision != Precision::kFp16 &&
         cost.precision != Precision::kBf16) ||
        cost.flops < kLeastFlops) {
      continue;
    }
    const size_t step = SteadyStepAt(m.steps, ops[row].begin_ns);
    if (step == m.steps.windows.size()) continue;
    found.push_back({step, row, cost.flops, ns});
  }
  return found;
}

Verdict CheckSlowHalf(const AnalysisContext& m) {
  const std::vector<HalfOp> all_ops = HalfOps(m);
  std::vector<HalfOp> slow;
  std::ranges::copy_if(all_ops, std::back_inserter(slow), &HalfOp::is_slow);
  if (!RecursInMostSteps(m.steps, slow)) return Clean();
  std::vector<ShortenedOp> ops;
  double flops = 0, ns = 0;
  for (const HalfOp& one : all_ops) {
    ops.push_back(
        {one.row, std::min(1.0, one.flops / kPeakFlopsPerNs / one.ns)});
    flops += one.flops;
    ns += one.ns;
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const HalfOp& longest = *std::ranges::max_element(slow, {}, &HalfOp::ns);
  const std::string type =
      CostOf(m.trace, longest.row).precision == Precision::kFp16 ? "float16"
                                                                 : "bfloat16";
  const Op& op = m.trace.ops()[longest.row];
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.where = CallSites(m.trace).Place(op.thread, op.begin_ns, longest.row);
  finding.examples = {{m.steps.windows[longest.step].number, op.begin_ns,
                       op.end_ns, OpWithShapes(m.trace, longest.row)}};
  finding.evidence =
      "Products in " + type + ", mainly " + OpWithShapes(m.trace, longest.row) +
      ", take " + Milliseconds(all.ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) + " step, at " + Number(flops / ns) +
      " GFLOP/s: a core does some 50 in float32. This CPU has no fast way to "
      "multiply such numbers in these sizes.";
  finding.assumption =
      "at best: products in float32 reach the peak of a core with AVX-512";
  finding.fix_python =
      "train in float32 on this CPU: model.float(), and no torch.autocast; "
      "torch.bfloat16 pays where lscpu lists amx_bf16 or avx512_bf16";
  finding.fix_cpp =
      "train in float32 on this CPU: model->to(torch::kFloat); "
      "torch::kBFloat16 pays where lscpu lists amx_bf16 or avx512_bf16";
  finding.wrong_if = "the numbers have to be in 16 bits, as in a test";
  return FireBound(std::move(finding), all.saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "slow-half-products",
     .question = "Do 16-bit products run slowly because the CPU has no "
                 "instructions for them?",
     .runs = Runs::kCpuOnly,
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckSlowHalf,
     .reference = "PyTorch documentation, Automatic Mixed Precision: "
                  "https://docs.pytorch.org/docs/stable/amp.html",
     .detect =
         "in two thirds of the steps, matrix products or convolutions in "
         "float16 or bfloat16, of a million operations or more, run at less "
         "than 3 GFLOP/s, a sixteenth of what a core does in float32",
     .avoid = "products in 16 bits that run at the rate of float32",
     .fix_cpp = "model->to(torch::kFloat)",
     .fix_python = "model.float(), and no torch.autocast"}};

}  // namespace
}  // namespace half_products_rules

extern const std::span<const Rule> kHalfProducts = half_products_rules::kRules;

}  // namespace stepscope
