// Does the step wait for communication between the ranks?
// Source: PyTorch Performance Tuning Guide, distributed training: DDP overlaps
// the all-reduce with backward. 3 % of the step is the lowest share that XProf
// calls moderate.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "device/collectives.h"
#include "evidence/collectives/collective_evidence.h"
#include "evidence/collectives/hideable_shards.h"
#include "evidence/collectives/shorter_collectives.h"
#include "evidence/collectives/transfers.h"
#include "evidence/gradient_passes.h"
#include "evidence/gradients/late_gradients.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace exposed_collectives_rules {
namespace {

constexpr double kExposedShare = 0.03;
// Faster links, or ranks that arrive on time, are advised instead of
// overlapping only if they shorten the step by another 5 %.
constexpr double kWorthLinks = 0.05;
// "Most" of the exposed time.
constexpr double kMostTime = 0.5;

// From 16 samples on, the statistics of a single rank are good enough (Wu and
// He 2018, Group Normalization, section 4.1).
constexpr int64_t kSamplesForNorm = 16;

bool AnyCollective(const Collective&) { return true; }

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

// Returns the advice for the kind of collective that is exposed longest.
const OverlapAdvice& AdviceFor(const AnalysisContext& m,
                               const HideableShards& hideable,
                               const LateGradients& late) {
  std::map<const OverlapAdvice*, int64_t> exposed;
  for (size_t i = 0; i < m.collectives.size(); ++i) {
    const Collective& one = m.collectives[i];
    if (one.step == kNoStep || hideable.AtEdge(one)) continue;
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

// The SyncBatchNorm layers. Each waits for the other ranks in the forward pass
// and again in the backward pass.
struct SynchronisedNorms {
  double layers = 0;    // per step
  int64_t samples = 0;  // fewest samples of this rank
};

SynchronisedNorms FindSynchronisedNorms(const AnalysisContext& m) {
  SynchronisedNorms norms;
  if (m.steps.thread == kNone) return norms;
  for (RowId row : m.tree.named("aten::batch_norm_stats")) {
    const Op& op = m.trace.ops()[row];
    if (op.thread != m.steps.thread || !InSteadyStep(m.steps, op.begin_ns)) {
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
void SaySynchronisedNorms(const AnalysisContext& m, Finding& finding) {
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
                 const HideableShards& hideable,
                 const std::vector<bool>& needed) {
  Edit edit;
  edit.early = late.early;
  for (size_t i = 0; i < m.collectives.size(); ++i) {
    const Collective& one = m.collectives[i];
    if (one.kernel == kNone || one.step == kNoStep || needed[i] ||
        late.members.contains(i) || hideable.AtEdge(one)) {
      continue;
    }
    edit.overlapped.push_back(KernelOf(one));
  }
  return edit;
}

// Adds how long the step waits for collectives whose results are needed at
// once, and returns that time, in ns per step.
double SayNeededAtOnce(const AnalysisContext& m,
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

void SayHowToArriveTogether(Finding& finding) {
  finding.fix_cpp = finding.fix_python =
      "give all ranks equal work per step: batches of equal token count "
      "(packing, or a sampler that fills batches by length); record all ranks "
      "and analyze their folder, which names the late ones";
}

// Inference has one pass, and its next layer needs the result of an all-reduce.
Verdict FireInference(Finding finding, double exposed) {
  finding.confidence = Confidence::kHint;
  finding.evidence +=
      " The program seems only to infer: the next layer needs these results, "
      "so that nothing of the same batch can run meanwhile.";
  finding.assumption = "at best: no collective is needed";
  finding.fix_cpp = finding.fix_python =
      "fewer GPUs per replica where the model fits into them, and more "
      "replicas; all-reduce kernels for small messages, joined with the norm "
      "behind them (custom all-reduce in vLLM and SGLang); two halves of the "
      "batch that take turns";
  finding.wrong_if = "the model does not fit into fewer GPUs";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = exposed,
                    .at_most = FindingSeverity::kLow});
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
  const HideableShards hideable(m);
  // Of shards before the first product of the step, and after the last.
  const double edges =
      TotalsOf(m.collectives, m.steps, [&](const Collective& one) {
        return hideable.AtEdge(one);
      }).exposed_ns;
  if (exposed - edges < kExposedShare * step) return Clean();
  const CollectiveTotals all = TotalsOf(m.collectives, m.steps, AnyCollective);
  const LateGradients late = FindLateGradients(
      m, FindGradientPasses(m.trace, m.tree, m.steps, m.collectives));
  const std::vector<bool> needed = NeededAtOnce(m);
  Edit edit = Overlapping(m, late, hideable, needed);
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
  const OverlapAdvice& advice = AdviceFor(m, hideable, late);
  if (&advice == &kActivationAdvice && OnlyInfers(m)) {
    return FireInference(std::move(finding), exposed);
  }
  finding.assumption = advice.assumption;
  finding.fix_cpp = advice.cpp;
  finding.fix_python = advice.python;
  SaySynchronisedNorms(m, finding);
  finding.wrong_if =
      "the other ranks arrive late, so that this rank waits for them; the fix "
      "then is to balance the ranks";
  const double needed_ns = SayNeededAtOnce(m, needed, finding);
  const bool mostly_needed = needed_ns > kMostTime * exposed;
  HalvedBytes half = HalfTheBytes(m, finding);
  // At best one half of the batch computes while the results of the other one
  // move.
  const double hidden_ns =
      exposed - edges - needed_ns + std::min(needed_ns, m.kernels.compute_ns);
  const double early_ns = std::max(0.0, hidden_ns - LastBucketNs(m));
  if (!mostly_needed && FillsTheStep(m, edit, exposed, early_ns)) {
    finding.confidence = Confidence::kHint;
    finding.evidence += kFillTheStep;
    finding.assumption = "at best: faster links, or ranks that arrive in time";
    finding.fix_cpp = finding.fix_python = kFindSlowLinks;
    if (WaitsAtTheFirst(m)) SayHowToArriveTogether(finding);
    return FireBound(std::move(finding), exposed);
  }
  const double most_ns = HidingBoundNs(m, early_ns, finding);
  // More micro-batches make the waits of a pipeline shorter, but some remain.
  if (&advice == &kStageAdvice) return FireBound(std::move(finding), most_ns);
  Found found{
      .finding = std::move(finding), .bound_ns = most_ns, .worth = kWorthLinks};
  if (WaitsByChance(m, exposed)) found.at_most = FindingSeverity::kLow;
  Alternative faster = FasterLinks(m, edit);
  Alternative in_time = RanksInTime(m, exposed);
  // The gain of what can overlap says little where most of the time cannot.
  if (mostly_needed) {
    if (half.change.edit != Edit()) found.bound_ns = half.saved_ns;
    found.alternatives = {std::move(half.change), std::move(faster),
                          std::move(in_time)};
  } else {
    found.alternatives = {{std::move(edit)},
                          std::move(faster),
                          std::move(in_time),
                          std::move(half.change)};
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
         "backward and is left out of the bound, as are gathers before the "
         "first product of the step and reduce-scatters after the last. One "
         "rank's trace cannot "
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
