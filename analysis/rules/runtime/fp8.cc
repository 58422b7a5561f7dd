// Would 8-bit floating point speed up large products that run in 16 bits?
// Sources: NVIDIA's H100 datasheet (FP8 at twice the rate of 16 bits);
// torchao.float8, whose filter leaves out linear layers with a dimension of at
// most 2048 or not a multiple of 16, because casts then cost what FP8 gains.
#include <stepscope/op_cost.h>

#include <string>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/kernel_evidence.h"
#include "words/quantities.h"

namespace stepscope {
namespace fp8_rules {
namespace {

constexpr double kShare = 0.50;  // of the GPU's compute time
constexpr int kHopper = 9;       // compute capability
constexpr int64_t kLeastDimension = 2048;
constexpr int64_t kMultiple = 16;
constexpr double kFaster = 2;

bool IsLarge(const MatmulShape& shape) {
  const auto suits = [](int64_t size) {
    return size > kLeastDimension && size % kMultiple == 0;
  };
  return suits(shape.m) && suits(shape.n) && suits(shape.k);
}

Verdict CheckFp8(const AnalysisContext& m) {
  const KernelUses& kernels = m.kernels;
  // Compute capabilities are NVIDIA's. AMD's numbers mean something else.
  if (IsAmd(kernels.device) || kernels.device.compute_major < kHopper) {
    return Clean();
  }
  // By op, because an op may launch several kernels; -1: not checked yet.
  std::vector<int8_t> known(m.trace.ops().size(), -1);
  const KernelFilter wanted = [&](const KernelUse& use) {
    if (!use.multiplies || use.kind != KernelClass::kMatmul ||
        !Is16Bit(use.precision) || use.op == kNone) {
      return false;
    }
    int8_t& large = known[use.op];
    if (large < 0) large = IsLarge(CostOf(m.trace, use.op).matmul);
    return large != 0;
  };
  const double ns = kernels.NsPerStep(wanted);
  if (ns <= 0 || ns < kShare * kernels.compute_ns) return Clean();
  Finding finding;
  finding.confidence = Confidence::kHint;
  finding.examples = LongestKernels(m, wanted);
  finding.evidence = "Matrix products in 16 bits with all dimensions above " +
                     std::to_string(kLeastDimension) + " take " +
                     Milliseconds(ns * 1e-6) + " per step (" +
                     Percent(ns / kernels.compute_ns) +
                     " of the GPU's compute time). The device multiplies in "
                     "FP8 at twice the rate.";
  finding.assumption =
      "at best: products take half the time, and casts and scales cost nothing";
  finding.fix_cpp =
      "at::_scaled_mm on FP8 operands, with a scale per tensor or row";
  finding.fix_python =
      "torchao.float8.convert_to_float8_training(model) with torch.compile, or "
      "Transformer Engine's fp8_autocast. Try it and check convergence";
  finding.wrong_if = "the model does not converge in 8 bits";
  // The cost of casts and scales depends on how the program is changed, so the
  // gain is a bound. Low, because well-tuned programs have such products, too:
  // FP8 trades accuracy for speed.
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = ns * (1 - 1 / kFaster),
                    .at_most = FindingSeverity::kLow});
}

constexpr Rule kRules[] = {
    {.id = "fp8-candidate",
     .question = "Would FP8 speed up large products that run in 16 bits?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckFp8,
     .reference = "NVIDIA H100 datasheet: FP8 Tensor Core rates; "
                  "torchao.float8",
     .detect = "on Hopper or later, 16-bit matrix products whose dimensions "
               "all exceed 2048 and are multiples of 16 take half of the GPU's "
               "compute time or more. Only a hint, at most low: the gain is a "
               "bound, and 8 bits cost accuracy",
     .avoid = "products are smaller, run in float32 (tensor-cores-idle) or in "
              "FP8 already, or the device is older",
     .fix_cpp = "at::_scaled_mm on FP8 operands",
     .fix_python = "torchao.float8, Transformer Engine"}};

}  // namespace
}  // namespace fp8_rules

extern const std::span<const Rule> kFp8 = fp8_rules::kRules;

}  // namespace stepscope
