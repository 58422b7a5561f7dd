#include "evidence/collectives/shorter_collectives.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "context/noise.h"
#include "device/collectives.h"
#include "evidence/collectives/transfers.h"
#include "evidence/gradient_passes.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// Overlapping must hide this share of the exposed time to be the advice where
// nothing tells slow links from late ranks.
constexpr double kMostHidden = 0.25;
// Less, as a share of the step, may be the last bucket of a fast network.
constexpr double kLargeShare = 0.1;
// "Most" of the time of products.
constexpr double kMostProducts = 0.5;

// How to move 16-bit values instead of 32-bit ones.
struct HalvingAdvice {
  const char* cpp;
  const char* python;
};
constexpr HalvingAdvice kHalfGradients = {
    "all-reduce the gradients in 16 bits (bucket.to(at::kBFloat16)); their sum "
    "is then rounded to 16 bits, so compare the loss",
    "model.register_comm_hook(None, default_hooks.bf16_compress_hook) of "
    "DistributedDataParallel (fp16_compress_hook before Ampere); the sum of "
    "the gradients is then rounded to 16 bits, so compare the loss"};
constexpr HalvingAdvice kHalfActivations = {
    "all-reduce activations and their gradients in the type of the products, "
    "before they are converted to float32; tensor parallelism across PCIe "
    "stays slow: use data or pipeline parallelism there",
    "all-reduce activations and their gradients in the type of the products: "
    "no .float() before dist.all_reduce(), and no .to(torch.bfloat16) after "
    "it; sequence parallelism and async tensor parallelism hide a part of the "
    "rest; across PCIe, data or pipeline parallelism moves less"};
constexpr HalvingAdvice kHalfShards = {
    "gather the weights in 16 bits; reducing the gradients in 16 bits changes "
    "the numerics, so compare the loss",
    "MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16) "
    "(FSDP2: MixedPrecisionPolicy); reduce_dtype changes the numerics, because "
    "the gradients are then summed in 16 bits, so compare the loss"};
constexpr HalvingAdvice kHalfMessages = {
    "convert what is sent to 16 bits before the exchange",
    "send in bfloat16: convert before the exchange, not after it"};

// Collectives of 32-bit floats in a model whose products run in 16 bits.
struct WideCollectives {
  double share = 0;     // of the exposed time of all collectives
  double saved_ns = 0;  // of the exposed time per step, by half the bytes
  const char* type = nullptr;  // what the products compute in
  const HalvingAdvice* advice = nullptr;
  Edit halved;
};

// Returns the kind of values that the collective moves.
const HalvingAdvice& HalvingAdviceFor(const Collective& one) {
  switch (one.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
      return kHalfShards;
    case CollectiveKind::kAllReduce:
      return one.gradient ? kHalfGradients : kHalfActivations;
    default:
      return kHalfMessages;
  }
}

// Returns the 16-bit type of most products; nullptr if most are not in 16 bits.
const char* NarrowType(const AnalysisContext& m) {
  const auto products_ns = [&](auto wanted) {
    return m.kernels.NsPerStep([&](const KernelUse& use) {
      return use.multiplies && wanted(use.precision);
    });
  };
  const double narrow = products_ns([](Precision p) { return Is16Bit(p); });
  if (narrow <= kMostProducts * products_ns([](Precision) { return true; })) {
    return nullptr;
  }
  const double half =
      products_ns([](Precision p) { return p == Precision::kFp16; });
  return half > kMostProducts * narrow ? "fp16" : "bf16";
}

// Halving the bytes halves the transfers at the best rate of the recording. The
// rest of a collective's time is latency or waiting for other ranks, and stays.
WideCollectives FindWide(const AnalysisContext& m) {
  WideCollectives wide;
  wide.type = m.has_gpu ? NarrowType(m) : nullptr;
  if (wide.type == nullptr) return wide;
  const int32_t ranks = m.trace.run().world_size;
  const double best = BestBusBandwidth(m.collectives, ranks);
  double exposed = 0, of_floats = 0;
  std::map<const HalvingAdvice*, double> saved;
  for (const Collective& one : m.collectives) {
    if (one.step == kNoStep ||
        !std::ranges::binary_search(m.steps.steady, one.step)) {
      continue;
    }
    const auto own = static_cast<double>(one.exposed_ns);
    exposed += own;
    if (!one.float32) continue;
    of_floats += own;
    const double ns = TransferNs(one, best, ranks);
    const auto now = static_cast<double>(one.moved.length());
    if (one.kernel == kNone || ns <= 0 || now <= 0) continue;
    wide.halved.scales.push_back({KernelOf(one), 1 - ns / 2 / now});
    saved[&HalvingAdviceFor(one)] += std::min(ns / 2, own);
  }
  for (const auto& [advice, ns] : saved) {
    if (wide.advice == nullptr || ns > saved[wide.advice]) wide.advice = advice;
    wide.saved_ns += ns / static_cast<double>(m.steps.steady.size());
  }
  wide.share = exposed > 0 ? of_floats / exposed : 0;
  return wide;
}

}  // namespace

bool FillsTheStep(const AnalysisContext& m, const Edit& overlapping,
                  double exposed_ns, double most_ns) {
  const bool sized = std::ranges::any_of(
      m.collectives, [](const Collective& one) { return one.bytes >= 0; });
  if (!m.has_gpu || sized || exposed_ns < kLargeShare * m.step_ns()) {
    return false;
  }
  const double hidden_ns =
      m.replay.check().valid
          ? m.replay.StepNs({}) - m.replay.StepNs(overlapping)
          : most_ns;
  return hidden_ns < kMostHidden * exposed_ns;
}

Alternative FasterLinks(const AnalysisContext& m, const Edit& overlapping) {
  const int32_t ranks = m.trace.run().world_size;
  const double best = BestBusBandwidth(m.collectives, ranks);
  Alternative faster;
  if (!m.has_gpu || best <= 0 || best >= kSlowLinkRate) return faster;
  faster.edit = overlapping;
  for (const Collective& one : m.collectives) {
    const double ns = TransferNs(one, kSlowLinkRate, ranks);
    const auto now = static_cast<double>(one.moved.length());
    if (one.kernel == kNone || one.step == kNoStep || ns < 0 || now <= 0) {
      continue;
    }
    faster.edit.scales.push_back({KernelOf(one), std::min(1.0, ns / now)});
  }
  faster.wording.evidence = kFillTheStep;
  faster.wording.evidence += " The predicted gain is that of links with " +
                             Number(kSlowLinkRate * 1e-9) + " GB/s.";
  faster.wording.assumption =
      "transfers reach " + Number(kSlowLinkRate * 1e-9) +
      " GB/s over the bus, no rank is late, and only the optimizer waits";
  faster.wording.fix_cpp = faster.wording.fix_python = kFindSlowLinks;
  faster.wording.confidence = Confidence::kHint;
  return faster;
}

Alternative RanksInTime(const AnalysisContext& m, double exposed_ns) {
  const int32_t ranks = m.trace.run().world_size;
  const double best = BestBusBandwidth(m.collectives, ranks);
  Alternative in_time;
  if (!m.has_gpu || best < kSlowLinkRate) return in_time;
  if (!TransfersNs(m, best)) return in_time;
  // The shortest collective of each size (by powers of two) includes the
  // latency.
  std::map<int, int64_t> shortest;
  const auto size_of = [](const Collective& one) {
    return one.bytes > 0 ? std::ilogb(static_cast<double>(one.bytes)) : 0;
  };
  for (const Collective& one : m.collectives) {
    if (one.step == kNoStep || one.moved.length() <= 0) continue;
    const auto [at, added] =
        shortest.try_emplace(size_of(one), one.moved.length());
    if (!added) at->second = std::min(at->second, one.moved.length());
  }
  const auto in_time_ns = [&](const Collective& one) {
    const auto least = shortest.find(size_of(one));
    return std::max(
        TransferNs(one, best, ranks),
        least == shortest.end() ? 0.0 : static_cast<double>(least->second));
  };
  if (*ExplainedNs(m, in_time_ns) >= kMostMoving * exposed_ns) return in_time;
  for (const Collective& one : m.collectives) {
    const double ns = in_time_ns(one);
    const auto now = static_cast<double>(one.moved.length());
    if (one.kernel == kNone || one.step == kNoStep || now <= 0) continue;
    in_time.edit.scales.push_back({KernelOf(one), std::min(1.0, ns / now)});
  }
  in_time.wording.evidence =
      " Overlapping cannot hide that: this rank is ready and waits.";
  in_time.wording.assumption =
      "all ranks arrive on time, so that transfers run at the best rate of "
      "this recording";
  in_time.wording.fix_cpp = in_time.wording.fix_python =
      "find the rank that arrives late, and what delays it: record all ranks, "
      "and stepscope analyze FOLDER compares them. Usual reasons: longer "
      "samples or more of them on one rank, a loader or disk that is slower "
      "there, checkpoints or logging on one rank, a device that throttles";
  return in_time;
}

HalvedBytes HalfTheBytes(const AnalysisContext& m, Finding& finding) {
  WideCollectives wide = FindWide(m);
  HalvedBytes half{.saved_ns = wide.saved_ns};
  if (wide.saved_ns * 1e-6 < MinReportableGainMs(m)) return half;
  finding.evidence += " Collectives in float32 are " + Percent(wide.share) +
                      " of the exposed time, although most products run in " +
                      wide.type + ".";
  half.change.edit = std::move(wide.halved);
  half.change.wording.assumption =
      "half the bytes take half the time at the best rate of this recording; "
      "waiting and latency stay";
  half.change.wording.fix_cpp = wide.advice->cpp;
  half.change.wording.fix_python = wide.advice->python;
  return half;
}

}  // namespace stepscope
