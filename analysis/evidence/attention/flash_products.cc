#include "evidence/attention/flash_products.h"

#include <stepscope/device_peaks.h>
#include <stepscope/op_cost.h>

#include <algorithm>

#include "evidence/kernel_evidence.h"

namespace stepscope {
namespace {

// The share of the peak that FlashAttention-2 reaches: 50 to 73 % on an A100
// (arxiv.org/abs/2307.08691), 35 % on an H100 (arxiv.org/abs/2407.08608).
constexpr double kShare = 0.5, kHopperShare = 0.35;
constexpr int kHopper = 9;

}  // namespace

double CausalShare(double length) {
  constexpr double kBlock = 128;
  return std::min(1.0, (length + kBlock) / (2 * length));
}

FlashProducts::FlashProducts(const AnalysisContext& context)
    : m_(context), device_ns_(DeviceNsByOp(context)) {}

double FlashProducts::Left(RowId row, double computed, bool in_16_bits) const {
  double flops = 0;
  const auto add = [&](RowId op) {
    const OpCost cost = CostOf(m_.trace, op);
    if (cost.flops <= 0 || (!in_16_bits && !Is16Bit(cost.precision))) return;
    flops += cost.flops;
  };
  add(row);
  if (m_.trace.ops()[row].kind == OpKind::kBackward) {
    for (RowId op : m_.tree.inside(row)) {
      if (m_.tree.traits(op).kind == KernelClass::kMatmul &&
          m_.tree.computes(op)) {
        add(op);
      }
    }
  }
  const DevicePeaks& peaks = m_.kernels.peaks;
  const double recorded_ns = DeviceNsInside(m_, device_ns_, row);
  if (!m_.has_gpu || !peaks.exact || peaks.fp16 <= 0 || flops <= 0 ||
      recorded_ns <= 0) {
    return computed;
  }
  const double reached =
      m_.kernels.device.compute_major >= kHopper ? kHopperShare : kShare;
  const double ns = computed * flops / (reached * peaks.fp16);
  return std::min(computed, ns / recorded_ns);
}

}  // namespace stepscope
