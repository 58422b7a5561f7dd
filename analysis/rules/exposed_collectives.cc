// Does the step wait for communication between the ranks?
// Source: PyTorch Performance Tuning Guide, distributed training: DDP overlaps
// the all-reduce with backward. 3 % of the step is the lowest share that XProf
// calls moderate.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "device/collectives.h"
#include "evidence/collectives/collective_evidence.h"
#include "evidence/gradient_passes.h"
#include "evidence/gradients/late_gradients.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace exposed_collectives_rules {
namespace {

constexpr double kExposedShare = 0.03;
constexpr double kMostSteps = 2.0 / 3;
constexpr int64_t kBigBytes = 1 << 20;  // large enough to measure a rate by
// In bytes per second: less than half of the rate of a PCIe 3 slot, or of a 100
// Gbit/s network.
constexpr double kSlowBus = 6e9;
// Faster links, or ranks that arrive on time, are advised instead of
// overlapping only if they shorten the step by another 5 %.
constexpr double kWorthLinks = 0.05;
// If moving bytes takes less than this share of the exposed time, the rest is
// waiting.
constexpr double kMostMoving = 0.5;

// "Most" of the exposed time, or of the time of products.
constexpr double kMostTime = 0.5;

// From 16 samples on, the statistics of a single rank are good enough (Wu and
// He 2018, Group Normalization, section 4.1).
constexpr int64_t kSamplesForNorm = 16;

bool AnyCollective(const Collective&) { return true; }

// Returns how much of the exposed time, in ns per step, is explained by
// transfers that take `transfer_ns(collective)`; nullopt if sizes were not
// recorded.
template <typename TransferTime>
std::optional<double> ExplainedNs(const AnalysisContext& m,
                                  TransferTime transfer_ns) {
  double moving = 0;
  for (const Collective& one : m.collectives) {
    if (one.step == kNoStep ||
        m.steps.windows[one.step].kind != StepKind::kSteady) {
      continue;
    }
    const double transfer = transfer_ns(one);
    if (transfer < 0) return {};
    // A transfer explains at most the exposed time of its collective.
    moving += std::min<double>(transfer, one.exposed_ns);
  }
  return moving / m.steps.steady.size();
}

std::optional<double> TransfersNs(const AnalysisContext& m, double bandwidth) {
  return ExplainedNs(m, [&](const Collective& one) {
    return TransferNs(one, bandwidth, m.trace.run().world_size);
  });
}

// True on a CPU if transfers explain less than half of the exposed time, and
// the rest is within the variation of the steps. If the steps of N ranks vary
// alike, the slowest rank is on average at most sqrt(2 ln N) standard
// deviations later than the mean, and no choice of buckets makes that shorter.
bool WaitsByChance(const AnalysisContext& m, double exposed) {
  const int32_t ranks = m.trace.run().world_size;
  const double bandwidth = BestBusBandwidth(m.collectives, ranks);
  if (m.has_gpu || bandwidth <= 0 || ranks < 2) return false;
  const std::optional<double> moving = TransfersNs(m, bandwidth);
  return moving && *moving < kMostMoving * exposed &&
         exposed - *moving <=
             std::sqrt(2 * std::log(ranks)) * m.stats.cov * m.step_ns();
}

// Returns a sentence that splits the exposed time into moving the bytes and the
// rest: waiting for other ranks, or slower transfers. The trace of one rank
// cannot split the rest any further.
std::string TransferOrWait(const AnalysisContext& m) {
  const int32_t ranks = m.trace.run().world_size;
  const double bandwidth = BestBusBandwidth(m.collectives, ranks);
  int64_t largest = -1;
  for (const Collective& one : m.collectives) {
    if (one.step != kNoStep) largest = std::max(largest, one.bytes);
  }
  if (bandwidth <= 0 && largest >= 0) {
    return largest < kBigBytes
               ? " None of them moves 1 MiB or more, so most of their time is "
                 "latency or waiting for other ranks."
               : " The number of ranks was not recorded, so transfers and "
                 "waiting for other ranks cannot be distinguished.";
  }
  const std::optional<double> moving = TransfersNs(m, bandwidth);
  if (!moving) {
    return " Sizes were not recorded, so transfers and waiting for other "
           "ranks cannot be distinguished.";
  }
  return " At the best rate of this recording (" + Number(bandwidth * 1e-9) +
         " GB/s over the bus), transfers explain " +
         Milliseconds(*moving * 1e-6) +
         " of that. The rest is waiting for other ranks or slower transfers; "
         "analyze the traces of all ranks together to see which." +
         (m.has_gpu && bandwidth < kSlowBus
              ? " This rate is slow for GPUs: check how they are connected "
                "(NCCL_DEBUG=INFO prints it) and whether some ranks are always "
                "late."
              : "");
}

// How to overlap collectives with computing, which depends on what they move.
struct OverlapAdvice {
  const char* assumption;
  const char* cpp;
  const char* python;
};
constexpr OverlapAdvice kGradientAdvice = {
    "collectives run as soon as they are issued, and only the optimizer waits "
    "for them",
    "issue each bucket's all-reduce as soon as its gradients are ready "
    "(ProcessGroup::allreduce returns a Work) and wait before the optimizer",
    "DistributedDataParallel(model, static_graph=True, "
    "gradient_as_bucket_view=True); "
    "model.register_comm_hook(None, default_hooks.bf16_compress_hook) halves "
    "the bytes; use no_sync() while accumulating"};
constexpr OverlapAdvice kLateAdvice = {
    kIssuedWhenReady,
    "issue each bucket's all-reduce from a hook of its last gradient "
    "(ProcessGroup::allreduce returns a Work) and wait before the optimizer, "
    "instead of reducing the gradients after backward",
    "wrap the model in DistributedDataParallel (or fully_shard) instead of "
    "all-reduces after backward(): it reduces each bucket as soon as its "
    "gradients are ready; DeepSpeed: overlap_comm; Megatron-LM: "
    "--overlap-grad-reduce"};
constexpr OverlapAdvice kShardAdvice = {
    "at best, fetching and reducing shards overlaps with computing, and only "
    "the optimizer waits for them",
    "issue the all-gather of the next layer before this one computes, and wait "
    "for its Work where the weights are used; do the same with "
    "reduce-scatters",
    "FSDP(backward_prefetch=BackwardPrefetch.BACKWARD_PRE, "
    "forward_prefetch=True), or set_modules_to_forward_prefetch() of "
    "fully_shard; wrap larger blocks; shard within a host only "
    "(HYBRID_SHARD); communicate in bfloat16"};
constexpr OverlapAdvice kActivationAdvice = {
    "at best, other computing overlaps with them; the gain is smaller where "
    "their results are needed at once",
    "split the batch into two halves, so that one computes while the other's "
    "Work runs; reduce statistics less often",
    "use sequence parallelism and async tensor parallelism instead of blocking "
    "all-reduces, and data or pipeline parallelism across PCIe; use "
    "SyncBatchNorm only where batches are small"};
constexpr OverlapAdvice kExchangeAdvice = {
    "at best, the exchanges overlap with computing that does not need them, "
    "and only the optimizer waits",
    "issue the all-to-all early (alltoall_base returns a Work), compute what "
    "does not need it, and wait where the result is used",
    "exchange the next batch's inputs while this one computes (TorchRec's "
    "TrainPipelineSparseDist); run the dense layers during the exchange of the "
    "embeddings; exchange experts' inputs in chunks during computing; send in "
    "bfloat16"};
constexpr OverlapAdvice kStageAdvice = {
    "at best, stages never wait for each other",
    "use more and smaller micro-batches per step; post sends and receives "
    "early",
    "use more micro-batches, an interleaved or zero-bubble schedule, and "
    "stages that take equally long"};

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

// Returns the advice for the kind of collective that is exposed longest.
const OverlapAdvice& AdviceFor(const AnalysisContext& m,
                               const LateGradients& late) {
  std::map<const OverlapAdvice*, int64_t> exposed;
  for (size_t i = 0; i < m.collectives.size(); ++i) {
    const Collective& one = m.collectives[i];
    if (one.step == kNoStep) continue;
    const OverlapAdvice* advice =
        late.members.contains(i) ? &kLateAdvice : &kGradientAdvice;
    switch (one.kind) {
      case CollectiveKind::kAllGather:
      case CollectiveKind::kReduceScatter:
        advice = &kShardAdvice;
        break;
      case CollectiveKind::kAllToAll:
        advice = &kExchangeAdvice;
        break;
      case CollectiveKind::kPointToPoint:
        advice = &kStageAdvice;
        break;
      case CollectiveKind::kAllReduce:
        if (!one.gradient) advice = &kActivationAdvice;
        break;
      default:
        break;
    }
    exposed[advice] += one.exposed_ns;
  }
  const auto most = std::ranges::max_element(
      exposed, {}, [](const auto& entry) { return entry.second; });
  return most == exposed.end() ? kGradientAdvice : *most->first;
}

// Returns the time per step that stays exposed at best: when the last bucket is
// full, backward has ended, so nothing is left to overlap with it.
double LastBucketNs(const AnalysisContext& m) {
  const double bandwidth =
      BestBusBandwidth(m.collectives, m.trace.run().world_size);
  double last = 0;
  for (size_t i : m.steps.steady) {
    const Collective* bucket = nullptr;
    for (const Collective& one : m.collectives) {
      if (one.step == i && one.gradient) bucket = &one;
    }
    if (bucket == nullptr) continue;
    const double transfer =
        TransferNs(*bucket, bandwidth, m.trace.run().world_size);
    last += transfer >= 0 ? std::min<double>(transfer, bucket->exposed_ns)
                          : bucket->exposed_ns;
  }
  return last / m.steps.steady.size();
}

constexpr const char* kFillTheStep =
    " They fill the step, so overlapping alone would gain less.";
constexpr const char* kFindSlowLinks =
    "find out why transfers are slow: NCCL_DEBUG=INFO prints the links and "
    "protocols in use, and the traces of all ranks show whether some are "
    "late; else move fewer bytes (compress gradients, or accumulate them "
    "over several batches)";
// Overlapping must hide this share of the exposed time to be the advice where
// nothing tells slow links from late ranks.
constexpr double kMostHidden = 0.25;
// Less, as a share of the step, may be the last bucket of a fast network.
constexpr double kLargeShare = 0.1;

// True if no size tells how fast transfers are, and overlapping hides little of
// them: what replay shows, or else at most `most_ns`.
bool FillsTheStep(const AnalysisContext& m, const Edit& overlapping,
                  double exposed, double most_ns) {
  const bool sized = std::ranges::any_of(
      m.collectives, [](const Collective& one) { return one.bytes >= 0; });
  if (!m.has_gpu || sized || exposed < kLargeShare * m.step_ns()) return false;
  const double hidden_ns =
      m.replay.check().valid
          ? m.replay.StepNs({}) - m.replay.StepNs(overlapping)
          : most_ns;
  return hidden_ns < kMostHidden * exposed;
}

// Collectives that fill the step from its first bucket to its end cannot
// overlap with anything more. If they are slower than any usual link, returns
// the change to transfers at a usual rate. Otherwise the edit is empty.
Alternative FasterLinks(const AnalysisContext& m, const Edit& overlapping) {
  const int32_t ranks = m.trace.run().world_size;
  const double best = BestBusBandwidth(m.collectives, ranks);
  Alternative faster;
  if (!m.has_gpu || best <= 0 || best >= kSlowBus) return faster;
  faster.edit = overlapping;
  for (const Collective& one : m.collectives) {
    const double ns = TransferNs(one, kSlowBus, ranks);
    const auto now = static_cast<double>(one.moved.length());
    if (one.kernel == kNone || one.step == kNoStep || ns < 0 || now <= 0) {
      continue;
    }
    faster.edit.scales.push_back({KernelOf(one), std::min(1.0, ns / now)});
  }
  faster.wording.evidence = kFillTheStep;
  faster.wording.assumption =
      "transfers reach " + Number(kSlowBus * 1e-9) +
      " GB/s over the bus, no rank is late, and only the optimizer waits";
  faster.wording.fix_cpp = faster.wording.fix_python = kFindSlowLinks;
  faster.wording.confidence = Confidence::kHint;
  return faster;
}

// If transfers at the best rate of the recording explain little of the exposed
// time, overlapping does not help, because collectives wait for the last rank.
// Then returns the change that all ranks arrive on time. Otherwise the edit is
// empty.
Alternative RanksInTime(const AnalysisContext& m, double exposed) {
  const int32_t ranks = m.trace.run().world_size;
  const double best = BestBusBandwidth(m.collectives, ranks);
  Alternative in_time;
  if (!m.has_gpu || best < kSlowBus) return in_time;
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
  if (*ExplainedNs(m, in_time_ns) >= kMostMoving * exposed) return in_time;
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

// The SyncBatchNorm layers. Each waits for the other ranks in the forward pass
// and again in the backward pass.
struct SynchronisedNorms {
  double layers = 0;    // per step
  int64_t samples = 0;  // fewest samples of this rank
};

SynchronisedNorms FindSynchronisedNorms(const AnalysisContext& m) {
  SynchronisedNorms norms;
  if (m.steps.thread == kNone) return norms;
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    if (m.trace.name(op.name) != "aten::batch_norm_stats" ||
        !InSteadyStep(m.steps, op.begin_ns)) {
      continue;
    }
    const TensorShape input = TensorArgument(m.trace, row, 0);
    const int64_t samples = input.dims.empty() ? 0 : input.dims.front();
    norms.samples =
        norms.layers > 0 ? std::min(norms.samples, samples) : samples;
    norms.layers += 1 / static_cast<double>(m.steps.steady.size());
  }
  return norms;
}

// Adds the SyncBatchNorm layers to the finding, and how to do without them if
// the rank's own samples suffice.
void TellSynchronisedNorms(const AnalysisContext& m, Finding& finding) {
  const SynchronisedNorms norms = FindSynchronisedNorms(m);
  if (norms.layers <= 0) return;
  finding.evidence +=
      " " + MeanCount(norms.layers, "layer") + " of SyncBatchNorm per step " +
      (std::llround(norms.layers) == 1 ? "waits" : "wait") +
      " for the other ranks twice, in the forward and in the backward pass" +
      (norms.samples > 0
           ? ", with " + Count(norms.samples, "sample") + " on each."
           : ".");
  if (norms.samples > 0 && norms.samples < kSamplesForNorm) return;
  const bool known = norms.samples > 0;
  const std::string samples = Count(norms.samples, "sample");
  finding.fix_python =
      "BatchNorm in place of SyncBatchNorm" +
      (known ? ": statistics of " + samples + " need no other rank"
             : std::string(" if each rank has 16 samples or more")) +
      ". Else: " + finding.fix_python;
  finding.fix_cpp = "BatchNorm with the rank's own statistics" +
                    (known ? ", of " + samples
                           : std::string(" if it has 16 samples or more")) +
                    ". Else: " + finding.fix_cpp;
}

// Returns the change that collectives run beside computing, except those whose
// results are needed at once.
Edit Overlapping(const AnalysisContext& m, const LateGradients& late,
                 const std::vector<bool>& needed) {
  Edit edit;
  edit.early = late.early;
  for (size_t i = 0; i < m.collectives.size(); ++i) {
    const Collective& one = m.collectives[i];
    if (one.kernel == kNone || one.step == kNoStep || needed[i] ||
        late.members.contains(i)) {
      continue;
    }
    edit.overlapped.push_back(KernelOf(one));
  }
  return edit;
}

// Adds how long the step waits for collectives whose results are needed at
// once, and returns that time, in ns per step.
double TellNeededAtOnce(const AnalysisContext& m,
                        const std::vector<bool>& needed, Finding& finding) {
  const CollectiveTotals totals =
      TotalsOf(m.collectives, m.steps, [&](const Collective& one) {
        return needed[static_cast<size_t>(&one - m.collectives.data())];
      });
  if (totals.exposed_ns <= 0) return 0;
  finding.evidence += " The next kernel needs the results of " +
                      Count(std::llround(totals.count), "all-reduce") +
                      " at once (" + Milliseconds(totals.exposed_ns * 1e-6) +
                      "), so that nothing of the same batch can run meanwhile.";
  return totals.exposed_ns;
}

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
  if (narrow <= kMostTime * products_ns([](Precision) { return true; })) {
    return nullptr;
  }
  const double half =
      products_ns([](Precision p) { return p == Precision::kFp16; });
  return half > kMostTime * narrow ? "fp16" : "bf16";
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

// Returns the change to half the bytes, and says in the finding's evidence how
// much of the exposed time it is about. Without edit where it gains too little.
Alternative HalfTheBytes(const AnalysisContext& m, WideCollectives wide,
                         Finding& finding) {
  Alternative half;
  if (wide.saved_ns * 1e-6 < MinReportableGainMs(m)) return half;
  finding.evidence += " Collectives in float32 are " + Percent(wide.share) +
                      " of the exposed time, although most products run in " +
                      wide.type + ".";
  half.edit = std::move(wide.halved);
  half.wording.assumption =
      "half the bytes take half the time at the best rate of this recording; "
      "waiting and latency stay";
  half.wording.fix_cpp = wide.advice->cpp;
  half.wording.fix_python = wide.advice->python;
  return half;
}

Verdict CheckExposed(const AnalysisContext& m) {
  if (m.trace.run().world_size == 1) return Clean();
  if (m.collectives.empty()) return AnswerWithoutCollectives(m);
  const double step = m.step_ns();
  const double exposed = m.MeanNs(Cause::kCommunication);
  if (exposed < kExposedShare * step ||
      m.ShareOfStepsWith(Cause::kCommunication, kExposedShare * step) <
          kMostSteps) {
    return Clean();
  }
  const CollectiveTotals all = TotalsOf(m.collectives, m.steps, AnyCollective);
  const LateGradients late = FindLateGradients(
      m, FindGradientPasses(m.trace, m.tree, m.steps, m.collectives));
  const std::vector<bool> needed = NeededAtOnce(m);
  Edit edit = Overlapping(m, late, needed);
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      Count(std::llround(all.count), "collective") +
      (std::llround(all.count) == 1 ? " per step takes " : " per step take ") +
      Milliseconds(all.moved_ns * 1e-6) +
      (m.has_gpu ? ". The GPU does not compute during " +
                       Milliseconds(exposed * 1e-6) + " of that ("
                 : ". The training thread issues them or waits for them for " +
                       Milliseconds(exposed * 1e-6) + " (") +
      Percent(exposed / step) + " of the step)." + TransferOrWait(m);
  Illustrate(m, AnyCollective, finding);
  const OverlapAdvice& advice = AdviceFor(m, late);
  finding.assumption = advice.assumption;
  finding.fix_cpp = advice.cpp;
  finding.fix_python = advice.python;
  TellSynchronisedNorms(m, finding);
  finding.wrong_if =
      "the other ranks arrive late, so that this rank waits for them; the fix "
      "then is to balance the ranks";
  const double needed_ns = TellNeededAtOnce(m, needed, finding);
  const bool mostly_needed = needed_ns > kMostTime * exposed;
  WideCollectives wide = FindWide(m);
  const double half_ns = wide.saved_ns;
  Alternative half = HalfTheBytes(m, std::move(wide), finding);
  // At best one half of the batch computes while the results of the other one
  // move.
  const double hidden_ns =
      exposed - needed_ns + std::min(needed_ns, m.kernels.compute_ns);
  const double early_ns = std::max(0.0, hidden_ns - LastBucketNs(m));
  if (!mostly_needed && FillsTheStep(m, edit, exposed, early_ns)) {
    finding.confidence = Confidence::kHint;
    finding.evidence += kFillTheStep;
    finding.assumption = "at best: faster links, or ranks that arrive in time";
    finding.fix_cpp = finding.fix_python = kFindSlowLinks;
    return FireBound(std::move(finding), exposed);
  }
  const double most_ns = HidingBoundNs(m, early_ns, finding);
  Found found{
      .finding = std::move(finding), .bound_ns = most_ns, .worth = kWorthLinks};
  if (WaitsByChance(m, exposed)) found.at_most = FindingSeverity::kLow;
  Alternative faster = FasterLinks(m, edit);
  Alternative in_time = RanksInTime(m, exposed);
  // The gain of what can overlap says little where most of the time cannot.
  if (mostly_needed) {
    if (half.edit != Edit()) found.bound_ns = half_ns;
    found.alternatives = {std::move(half), std::move(faster),
                          std::move(in_time)};
  } else {
    found.alternatives = {{std::move(edit)},
                          std::move(faster),
                          std::move(in_time),
                          std::move(half)};
  }
  return Fire(std::move(found));
}

constexpr Rule kRules[] = {
    {.id = "exposed-collective",
     .question = "Does the step wait for communication that could overlap with "
                 "computing?",
     .needs = {},
     .causes = {Cause::kCommunication, Cause::kDependency},
     .check = &CheckExposed,
     .reference = "PyTorch Performance Tuning Guide, distributed training: "
                  "overlap communication with backward",
     .detect = "in two thirds of the steady steps, collectives run without "
               "any computing for at least 3 % of the step (the lowest share "
               "that XProf calls moderate)",
     .avoid =
         "the job has one rank only. The last bucket cannot overlap with "
         "backward and is left out of the bound. One rank's trace cannot "
         "distinguish transfers from waiting for a late rank, and the "
         "finding says so: where transfers at the recording's best rate "
         "explain "
         "less than half, it advises to look for that rank; on a CPU it is "
         "low if transfers explain less "
         "than half, and the rest is no more than the steps of ranks "
         "vary. If collectives run below 6 GB/s, or at an "
         "unknown rate, and no computing is left to overlap with, the finding "
         "is only a hint to check the links and for late ranks. All-reduces of "
         "activations "
         "whose result the next kernel waits for cannot overlap: where they "
         "are most of the time, the gain is that of half the bytes, if they "
         "move float32 in a model that computes in 16 bits, else at most the "
         "time of computing",
     .fix_cpp = "issue each bucket's all-reduce as soon as its gradients are "
                "ready and wait for the Works before the optimizer",
     .fix_python =
         "depends on what is exposed: DistributedDataParallel in place of "
         "all-reduces after backward; its buckets and static_graph=True; "
         "collectives in 16 bits; FSDP's prefetching; exchanges during "
         "computing that does not need them; more micro-batches",
     .change = "less waiting for collectives"}};

}  // namespace
}  // namespace exposed_collectives_rules

extern const std::span<const Rule> kExposedCollectives =
    exposed_collectives_rules::kRules;

}  // namespace stepscope
