// Does communication between the ranks hold the step up?
// Source: PyTorch Performance Tuning Guide, distributed training: DDP overlaps
// the all-reduce with backward. 3 % is the lowest bound that XProf calls
// moderate.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "context/rule.h"
#include "device/collectives.h"
#include "evidence/collective_evidence.h"
#include "evidence/gradient_passes.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr double kExposedShare = 0.03;
constexpr double kMostSteps = 2.0 / 3;
constexpr int64_t kBigBytes = 1 << 20;
// In bytes per second. Less than half of a PCIe 3 slot, or of a 100 Gbit/s
// network.
constexpr double kSlowBus = 6e9;

bool All(const Collective&) { return true; }

// How much of the exposed time moving the bytes explains; the rest is waiting
// for other ranks, or a slow link. One rank alone cannot tell these apart.
std::string MovingOrWaiting(const AnalysisContext& m) {
  const int32_t ranks = m.trace.run().world_size;
  const double bandwidth = BestBusBandwidth(m.collectives, ranks);
  int64_t largest = -1;
  for (const Collective& one : m.collectives) {
    if (one.step != kNoStep) largest = std::max(largest, one.bytes);
  }
  if (bandwidth <= 0 && largest >= 0) {
    return largest < kBigBytes
               ? " None is of 1 MiB or more: most of their time is latency, or "
                 "waiting for other ranks."
               : " How many ranks take part was not recorded, so moving and "
                 "waiting for other ranks cannot be told apart.";
  }
  double moving = 0;
  for (const Collective& one : m.collectives) {
    if (one.step == kNoStep ||
        m.steps.windows[one.step].kind != StepKind::kSteady) {
      continue;
    }
    const double transfer = TransferNs(one, bandwidth, ranks);
    if (transfer < 0) {
      return " Sizes were not recorded, so moving and waiting for other "
             "ranks cannot be told apart.";
    }
    moving += std::min<double>(transfer, one.exposed_ns);
  }
  moving /= m.steps.steady.size();
  return " At the best rate seen here (" + Number(bandwidth * 1e-9) +
         " GB/s over the bus) " + Milliseconds(moving * 1e-6) +
         " of that is moving; the rest is waiting for other ranks or slower "
         "transfers (all ranks' traces together tell which)." +
         (m.has_gpu && bandwidth < kSlowBus
              ? " That rate is slow for GPUs: look at the topology "
                "(NCCL_DEBUG=INFO tells what connects them), or for ranks that "
                "are always late."
              : "");
}

// What hides a collective depends on what it is for.
struct Hiding {
  const char* assumption;
  const char* cpp;
  const char* python;
};
constexpr Hiding kOfGradients = {
    "collectives run as soon as they are issued, and only the optimizer waits "
    "for them",
    "issue each bucket's all-reduce as soon as its gradients are there "
    "(ProcessGroup::allreduce returns a Work), wait before the optimizer",
    "DistributedDataParallel(model, static_graph=True, "
    "gradient_as_bucket_view=True); "
    "model.register_comm_hook(None, default_hooks.bf16_compress_hook) halves "
    "the bytes; no_sync() while accumulating"};
constexpr Hiding kOfShards = {
    "at best: shards are fetched and reduced beside computing, and only the "
    "optimizer waits for them",
    "issue the all-gather of the next layer before this one computes, and wait "
    "for its Work where the weights are used; reduce-scatters likewise",
    "FSDP(backward_prefetch=BackwardPrefetch.BACKWARD_PRE, "
    "forward_prefetch=True), or set_modules_to_forward_prefetch() of "
    "fully_shard; larger wrapped blocks; shards within a host only "
    "(HYBRID_SHARD); communicate in bfloat16"};
constexpr Hiding kOfActivations = {
    "at best: other computing runs beside them; what needs their results at "
    "once wins less",
    "split the batch in two halves, so that one computes while the other's "
    "Work is under way; reduce statistics less often",
    "sequence parallelism and async tensor parallelism instead of blocking "
    "all-reduces; SyncBatchNorm only where batches are small"};
constexpr Hiding kOfExchanges = {
    "at best: the exchanges run beside computing that does not need them, and "
    "only the optimizer waits",
    "issue the all-to-all early (alltoall_base returns a Work), compute what "
    "does not need it, wait where the result is used",
    "exchange the next batch's inputs while this one computes (TorchRec's "
    "TrainPipelineSparseDist), the dense layers beside the embeddings' "
    "exchange; for experts, in chunks beside computing; send in bfloat16"};
constexpr Hiding kOfStages = {
    "at best: stages never wait for each other",
    "more and smaller micro-batches per step; sends and receives posted early",
    "more micro-batches, an interleaved or zero-bubble schedule, stages of "
    "equal time"};

const Hiding& HidingOf(const AnalysisContext& m) {
  std::map<const Hiding*, int64_t> exposed;
  for (const Collective& one : m.collectives) {
    if (one.step == kNoStep) continue;
    const Hiding* of = &kOfGradients;
    switch (one.kind) {
      case CollectiveKind::kAllGather:
      case CollectiveKind::kReduceScatter:
        of = &kOfShards;
        break;
      case CollectiveKind::kAllToAll:
        of = &kOfExchanges;
        break;
      case CollectiveKind::kPointToPoint:
        of = &kOfStages;
        break;
      case CollectiveKind::kAllReduce:
        if (!one.gradient) of = &kOfActivations;
        break;
      default:
        break;
    }
    exposed[of] += one.exposed_ns;
  }
  const auto most = std::ranges::max_element(
      exposed, {}, [](const auto& entry) { return entry.second; });
  return most == exposed.end() ? kOfGradients : *most->first;
}

// What stays exposed at best: the last bucket has nothing to hide behind.
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
  const CollectiveTotals all = TotalsOf(m.collectives, m.steps, All);
  Edit edit;
  for (const Collective& one : m.collectives) {
    if (one.kernel != kNone && one.step != kNoStep) {
      edit.overlapped.push_back(KernelOf(one));
    }
  }
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      Count(std::llround(all.count), "collective") + " per step take " +
      Milliseconds(all.moved_ns * 1e-6) +
      (m.has_gpu
           ? ", and nothing computes during " + Milliseconds(exposed * 1e-6) +
                 " of it ("
           : "; the training thread issues them, or waits for them, for " +
                 Milliseconds(exposed * 1e-6) + " (") +
      Percent(exposed / step) + " of the step)." + MovingOrWaiting(m);
  Illustrate(m, All, finding);
  const Hiding& hiding = HidingOf(m);
  finding.assumption = hiding.assumption;
  finding.fix_cpp = hiding.cpp;
  finding.fix_python = hiding.python;
  finding.wrong_if =
      "the other ranks arrive late: then this rank waits, and balancing the "
      "ranks is the fix";
  return Fire(std::move(finding), std::move(edit),
              std::max(0.0, exposed - LastBucketNs(m)));
}

constexpr Rule kRules[] = {
    {.id = "exposed-collective",
     .question = "Does the step wait for communication that computing could "
                 "hide?",
     .needs = {},
     .check = &CheckExposed,
     .reference = "PyTorch Performance Tuning Guide, distributed training: "
                  "overlap communication with backward",
     .detect = "collectives run without computing beside them for at least "
               "3 % of the step (XProf's lowest moderate bound), in two "
               "thirds of the steady steps",
     .avoid = "one rank alone cannot tell moving bytes from waiting for a "
              "late rank, and says so; the last bucket has nothing to hide "
              "behind and is left out of the bound; a world of one rank",
     .fix_cpp = "issue each bucket's all-reduce as soon as its gradients are "
                "there, wait for the Works before the optimizer",
     .fix_python = "by what is exposed: DistributedDataParallel's buckets and "
                   "static_graph=True; FSDP's prefetching; exchanges beside "
                   "computing that does not need them; more micro-batches"}};

}  // namespace

extern const std::span<const Rule> kExposedCollectives = kRules;

}  // namespace stepscope
