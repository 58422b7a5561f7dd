// Are the gradient buckets of a good size?
// Source: PyTorch Performance Tuning Guide, distributed training: buckets.
// DDP's 25 MiB buckets give 4 to 5 collectives for a ResNet-50 (measured).
// Latency dominates a collective of less than 256 KiB.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "context/rule.h"
#include "device/collectives.h"
#include "evidence/collectives/collective_evidence.h"
#include "evidence/collectives/collective_runs.h"
#include "evidence/gradient_passes.h"
#include "evidence/gradients/late_gradients.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace buckets_rules {
namespace {

constexpr double kExposedShare = 0.03;
// Far more than the 4 to 5 that DDP's default gives.
constexpr size_t kManyCollectives = 20;
// Where sizes are unknown: with so many parameters for each all-reduce, buckets
// exist. A layer has a weight and a bias, whose gradients come together.
constexpr double kParametersOfABucket = 3;
constexpr int64_t kTinyBytes = 256 << 10;
constexpr double kOneBucketShare = 0.8;
// The assumed number of 25 MiB buckets if sizes are unknown.
constexpr size_t kUnsplitBuckets = 4;

bool IsGradient(const Collective& one) { return one.gradient; }

// How the backward passes divide their gradients into collectives.
struct Shape {
  double passes = 0, collectives = 0;  // per step
  int64_t median_bytes = -1;
  int64_t most_bytes = 0, pass_bytes = 0;  // of the first pass
  size_t parameters = 0;
  bool per_parameter = false, tiny = false, one_bucket = false;
};

Shape ShapeOf(const AnalysisContext& m,
              const std::vector<GradientPass>& passes) {
  Shape shape;
  std::vector<double> sizes;
  size_t many = 0, each = 0;
  bool sizes_known = true;
  for (const GradientPass& pass : passes) {
    shape.collectives += pass.collectives.size();
    sizes_known &= pass.sizes_known;
    for (size_t i : pass.collectives) {
      sizes.push_back(static_cast<double>(m.collectives[i].bytes));
      shape.most_bytes = std::max(shape.most_bytes, m.collectives[i].bytes);
    }
    shape.pass_bytes = std::max(shape.pass_bytes, pass.bytes);
    shape.parameters = std::max(shape.parameters, pass.parameters.size());
    if (pass.collectives.size() <= kManyCollectives) continue;
    ++many;
    each +=
        !pass.parameters.empty() &&
        pass.collectives.size() >= kPerParameterShare * pass.parameters.size();
  }
  shape.passes = static_cast<double>(passes.size()) / m.steps.steady.size();
  shape.collectives /= m.steps.steady.size();
  // Use the median, because the last bucket of a pass holds only the remainder.
  if (sizes_known) shape.median_bytes = std::llround(Median(sizes));
  const auto most = [&](size_t count) {
    return count >= kMostSteps * passes.size();
  };
  shape.per_parameter = most(each);
  shape.tiny = most(many) && sizes_known && shape.median_bytes < kTinyBytes;
  shape.one_bucket = sizes_known && shape.pass_bytes > kBucketBytes &&
                     shape.most_bytes >= kOneBucketShare * shape.pass_bytes;
  return shape;
}

size_t BucketsOf(const GradientPass& pass) {
  return pass.sizes_known
             ? std::max<size_t>(1, std::ceil(pass.bytes / kBucketBytes))
             : kUnsplitBuckets;
}

// True if the collectives run on the host, as those of gloo do.
bool OnHost(const AnalysisContext& m, const std::vector<GradientPass>& passes) {
  return std::ranges::all_of(passes, [&](const GradientPass& pass) {
    return std::ranges::all_of(pass.collectives, [&](size_t i) {
      return m.collectives[i].kernel == kNone;
    });
  });
}

// Returns the share of the collectives, 0 to 1, that buckets would make
// unnecessary.
double NeedlessShare(const std::vector<GradientPass>& passes) {
  double calls = 0, buckets = 0;
  for (const GradientPass& pass : passes) {
    calls += static_cast<double>(pass.collectives.size());
    buckets += static_cast<double>(BucketsOf(pass));
  }
  return std::max(0.0, 1 - buckets / std::max(calls, 1.0));
}

// Returns the change to buckets of 25 MiB: one call remains per bucket, and the
// bytes move at `bandwidth`, in bytes per second.
Edit InBuckets(const AnalysisContext& m,
               const std::vector<GradientPass>& passes, double bandwidth) {
  const int32_t ranks = m.trace.run().world_size;
  Edit edit;
  for (const GradientPass& pass : passes) {
    const size_t buckets = BucketsOf(pass);
    double moved = 0, transfer = 0;
    for (size_t i : pass.collectives) {
      const Collective& one = m.collectives[i];
      moved += one.moved.length();
      const double ns = TransferNs(one, bandwidth, ranks);
      transfer += ns >= 0 ? ns : one.moved.length();
    }
    for (size_t at = 0; at < pass.collectives.size(); ++at) {
      const Collective& one = m.collectives[pass.collectives[at]];
      if (one.kernel == kNone) continue;
      // An edit can only scale recorded activities, so all calls of the pass
      // share the shorter time.
      if (moved > 0 && transfer < moved) {
        edit.scales.push_back({KernelOf(one), transfer / moved});
      }
      // Calls beyond the number of buckets no longer cost host time.
      if (at >= buckets && one.thread != kNone) {
        edit.cuts.push_back({one.thread, one.issued, 0});
      }
    }
  }
  return edit;
}

// `buckets`: all-reduces of gradients are buckets already.
Verdict CheckRuns(const AnalysisContext& m, bool buckets) {
  const CollectiveRuns runs = FindRuns(m, kManyCollectives, !buckets);
  if (!AreMostSteps(m.steps, runs.steps)) return Clean();
  const auto wanted = [&](const Collective& one) {
    return runs.members.contains(
        static_cast<size_t>(&one - m.collectives.data()));
  };
  const CollectiveTotals totals = TotalsOf(m.collectives, m.steps, wanted);
  Finding finding;
  // Only a hint: known sizes would show whether the collectives are large
  // enough.
  finding.confidence = Confidence::kHint;
  finding.evidence =
      Count(std::llround(runs.collectives), "collective") +
      " per step (mostly " + CollectiveName(runs.kind) + ") could be " +
      Count(std::llround(runs.runs), "call") +
      ": no matrix product lies between them. Issuing them takes the host " +
      Milliseconds(totals.issue_ns * 1e-6) + " per step, and " +
      Milliseconds(totals.exposed_ns * 1e-6) +
      " per step of their time is exposed. Their sizes were not recorded.";
  Illustrate(m, wanted, finding);
  finding.assumption =
      "at best: each series takes as long as its longest collective";
  finding.fix_cpp =
      "copy the tensors into flat buckets of about 25 MiB, or group the calls "
      "with ncclGroupStart and ncclGroupEnd";
  finding.fix_python =
      "DistributedDataParallel(model, gradient_as_bucket_view=True) instead of "
      "a loop over parameters; for other tensors flatten them into one, or "
      "torch.distributed.all_reduce_coalesced()";
  finding.wrong_if =
      "each of them moves 25 MiB or more; torch.profiler records sizes of "
      "NCCL's calls since PyTorch 2.2";
  // This trial shows whether the bound can be reached at all.
  Edit without;
  for (size_t i : runs.members) {
    const Collective& one = m.collectives[i];
    without.scales.push_back({KernelOf(one), 0});
    if (one.thread != kNone) without.cuts.push_back({one.thread, one.issued});
  }
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = runs.bound_ns,
                    .trials = {std::move(without)}});
}

Verdict CheckBucketShape(const AnalysisContext& m) {
  if (m.trace.run().world_size == 1) return Clean();
  if (m.collectives.empty()) return AnswerWithoutCollectives(m);
  const std::vector<GradientPass> passes =
      FindGradientPasses(m.trace, m.tree, m.steps, m.collectives);
  if (passes.empty()) return CheckRuns(m, false);
  const Shape shape = ShapeOf(m, passes);
  const CollectiveTotals totals = TotalsOf(m.collectives, m.steps, IsGradient);
  const LateGradients late = FindLateGradients(m, passes);
  const double step = m.step_ns();
  const bool split = shape.per_parameter || shape.tiny;
  const bool one_bucket =
      shape.one_bucket && totals.exposed_ns >= kExposedShare * step;
  const int64_t per_pass =
      std::llround(shape.collectives / std::max(shape.passes, 1.0));
  if (!split && !one_bucket) {
    return CheckRuns(m, shape.parameters >= kParametersOfABucket *
                                                static_cast<double>(per_pass));
  }

  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence = Count(per_pass, "all-reduce") + " per backward pass";
  if (shape.median_bytes >= 0) {
    finding.evidence += ", with a median size of " +
                        Bytes(static_cast<double>(shape.median_bytes));
  }
  if (shape.per_parameter) {
    finding.evidence +=
        ", about one for each of the " +
        Count(static_cast<int64_t>(shape.parameters), "parameter");
  }
  if (one_bucket) {
    finding.evidence +=
        "; the largest holds " +
        Percent(static_cast<double>(shape.most_bytes) / shape.pass_bytes) +
        " of the gradients, so no computation is left to overlap with it";
  }
  finding.evidence += ". Issuing them takes the host " +
                      Milliseconds(totals.issue_ns * 1e-6) + " per step, and " +
                      Milliseconds(totals.exposed_ns * 1e-6) +
                      " per step of their time is exposed.";
  if (split && !late.early.empty()) {
    finding.evidence +=
        " All of them are issued after the backward pass, when nothing is left "
        "to overlap with them.";
  }
  Illustrate(m, IsGradient, finding);
  const BusBandwidth bus = LikelyBusBandwidth(m.trace, m.collectives);
  const bool on_host = OnHost(m, passes);
  finding.assumption =
      !split ? "all buckets but the last overlap with backward"
      : on_host
          ? "at best: a bucket takes as long as one of these collectives, "
            "which mostly wait for each other and not for bytes"
          : "the same gradients move in buckets of 25 MiB at " +
                (bus.seen || bus.bytes_per_s <= 0
                     ? std::string("the best rate of this recording")
                     : Number(bus.bytes_per_s * 1e-9) +
                           " GB/s, the usual rate of this device's bus (no "
                           "recorded collective is large enough to measure "
                           "it)");
  if (split && !late.early.empty()) {
    finding.assumption += std::string("; ") + kIssuedWhenReady;
  }
  finding.fix_cpp =
      "copy the gradients into flat buckets (at::cat, at::_foreach_copy_) and "
      "call ProcessGroup::allreduce once per 25 MiB";
  if (!late.early.empty()) {
    finding.fix_cpp +=
        ", from a hook of the last gradient of each bucket; wait for the Works "
        "before the optimizer";
  }
  finding.fix_python =
      split
          ? "DistributedDataParallel(model, bucket_cap_mb=25, "
            "gradient_as_bucket_view=True) instead of a loop over parameters" +
                std::string(late.early.empty()
                                ? ""
                                : ": it reduces each bucket as soon as its "
                                  "gradients are ready, during backward")
          : "DistributedDataParallel(model, bucket_cap_mb=25), because smaller "
            "buckets start earlier";
  finding.wrong_if = late.early.empty()
                         ? "the all-reduces belong to several small models"
                         : "the all-reduces belong to several small models, or "
                           "mostly wait for ranks that arrive late";
  Edit edit = split ? InBuckets(m, passes, bus.bytes_per_s) : Edit();
  if (split) edit.early = late.early;
  // All but the last 25 MiB could have moved during backward.
  const double last_share =
      shape.pass_bytes > 0 ? std::min(1.0, kBucketBytes / shape.pass_bytes) : 0;
  const double bound =
      !split ? totals.exposed_ns * (1 - last_share)
      : on_host
          ? std::max(totals.issue_ns, totals.exposed_ns * NeedlessShare(passes))
          : totals.issue_ns + late.exposed_ns * (1 - last_share);
  return Fire(std::move(finding), std::move(edit), bound);
}

constexpr Rule kRules[] = {
    {.id = "ddp-bucket-shape",
     .question = "Are the gradient buckets too small, or is there only one?",
     .needs = {},
     .causes = {Cause::kCommunication},
     .check = &CheckBucketShape,
     .reference = "PyTorch Performance Tuning Guide, distributed training: "
                  "gradient buckets",
     .detect =
         "a backward pass issues more than 20 all-reduces with a median below "
         "256 KiB, or about one per parameter (DDP's 25 MiB default gives 4 to "
         "5 for a ResNet-50); or one bucket holds at least 80 % of the bytes "
         "while 3 % of the step is exposed communication; or, where sizes were "
         "not recorded, 20 collectives per step of one kind and group follow "
         "each other without a matrix product between them (a hint). Where all "
         "of them follow the backward pass, the gain includes overlapping them "
         "with it",
     .avoid =
         "all gradients fit into one 25 MiB bucket anyway, or the all-reduces "
         "come from nodes other than AccumulateGrad (SyncBatchNorm, tensor "
         "parallelism)",
     .fix_cpp = "copy the gradients into flat buckets and all-reduce once per "
                "25 MiB",
     .fix_python = "DistributedDataParallel(bucket_cap_mb=25, "
                   "gradient_as_bucket_view=True)",
     .change = "other gradient buckets"}};

}  // namespace
}  // namespace buckets_rules

extern const std::span<const Rule> kBuckets = buckets_rules::kRules;

}  // namespace stepscope
