// Does communication between the ranks hold the step up?
// Source: PyTorch Performance Tuning Guide, distributed training: DDP overlaps
// the all-reduce with backward. 3 % is the lowest bound that XProf calls
// moderate.
#include "collectives.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "collective_evidence.h"
#include "gradient_passes.h"
#include "report/words.h"
#include "rule.h"

namespace stepscope {
namespace {

constexpr double kExposedShare = 0.03;
constexpr double kMostSteps = 2.0 / 3;

bool All(const Collective&) { return true; }

// How much of the exposed time moving the bytes explains; the rest is waiting
// for other ranks, or a slow link. One rank alone cannot tell these apart.
std::string MovingOrWaiting(const Measured& m) {
  const int32_t ranks = m.trace.run().world_size;
  const double bandwidth = BestBusBandwidth(m.collectives, ranks);
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
         "transfers (all ranks' traces together tell which).";
}

// What stays exposed at best: the last bucket has nothing to hide behind.
double LastBucketNs(const Measured& m) {
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

Verdict CheckExposed(const Measured& m) {
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
      Milliseconds(all.moved_ns * 1e-6) + ", and nothing computes during " +
      Milliseconds(exposed * 1e-6) + " of it (" + Percent(exposed / step) +
      " of the step)." + MovingOrWaiting(m);
  Illustrate(m, All, finding);
  finding.assumption =
      "collectives run as soon as they are issued, and only the optimizer "
      "waits for them";
  finding.fix_cpp =
      "issue each bucket's all-reduce as soon as its gradients are there "
      "(ProcessGroup::allreduce returns a Work), wait before the optimizer";
  finding.fix_python =
      "DistributedDataParallel(model, static_graph=True, "
      "gradient_as_bucket_view=True); "
      "model.register_comm_hook(None, default_hooks.bf16_compress_hook) "
      "halves the bytes; no_sync() while accumulating";
  finding.wrong_if =
      "the other ranks arrive late: then this rank waits, and balancing the "
      "ranks is the fix";
  finding = Sized(m, std::move(finding), edit,
                  std::max(0.0, exposed - LastBucketNs(m)));
  std::vector<Edit> edits;
  if (edit != Edit()) edits.push_back(std::move(edit));
  return Fire(std::move(finding), std::move(edits));
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
     .fix_python = "DistributedDataParallel with static_graph=True, "
                   "gradient_as_bucket_view=True and a bf16 hook; no_sync() "
                   "while accumulating"}};

}  // namespace

extern const std::span<const Rule> kCollectives = kRules;

}  // namespace stepscope
