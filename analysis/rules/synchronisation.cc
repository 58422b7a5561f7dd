// Does the host wait for the GPU without need?
// Sources: PyTorch Performance Tuning Guide, "Avoid unnecessary CPU-GPU
// synchronization"; "17 tips", numbers 4, 7 and 14. Blocked time is not the
// gain: a loop that keeps the GPU busy is blocked for most of the step and has
// nothing to gain. These rules use replay, or the idle time of the GPU right
// after the waits.
#include <stepscope/device_peaks.h>

#include <algorithm>
#include <array>
#include <compare>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/gradient_passes.h"
#include "evidence/launches.h"
#include "evidence/wait_reads.h"
#include "evidence/wait_sites.h"
#include "ops/backward_nodes.h"
#include "ops/contains.h"
#include "words/quantities.h"

namespace stepscope {
namespace synchronisation_rules {
namespace {

constexpr double kHalfOfSteps = 0.5;  // of all steps but the last
constexpr double kMostWaits = 0.5;    // our own choice
// So many reads at one place are a loop over samples. Our own choice.
constexpr double kReadsOfALoop = 16;
constexpr double kWorthSaying = 0.05;  // of the blocked time
// An exchange uses the sizes that were read right before. Our own choices.
constexpr int64_t kSoonNs = 2'000'000;
constexpr double kWorthExchanging = 0.25;  // of the blocked time
constexpr double kLeastIdleNs = 5'000;     // less would be printed as 0
// Clipping reads the norm, and the gradient scaler its check.
constexpr double kReadsOfClipping = 2;

WaitFilter Only(const AnalysisContext& m, const std::vector<bool>& chosen) {
  return [&m, chosen](const HostWait& wait) {
    return chosen[static_cast<size_t>(&wait - m.waits.all.data())];
  };
}

struct Advice {
  const char* what;
  const char* cpp;
  const char* python;
};
// In the order of ReadKind.
constexpr std::array<Advice, 5> kAdvice = {
    {{"reads of single values",
      "keep the value on the device (accumulate it there and read it every N "
      "steps), or copy it to pinned memory with non_blocking=true, record an "
      "event and read it one step later; do not call item<T>() in the loop",
      "keep metrics on the GPU and read them every N steps; or x.to(\"cpu\", "
      "non_blocking=True) into pinned memory and read it one step later; do "
      "not call .item() in the loop"},
     {"branches on GPU values",
      "compute both sides and select with at::where instead of `if "
      "(t.any().item<bool>())`, or decide one step later",
      "torch.where instead of `if tensor:`, or decide one step later"},
     {"results whose size depends on values",
      "masks and at::where instead of boolean indexing, at::nonzero_static for "
      "a known size",
      "masks and torch.where instead of boolean indexing, "
      "torch.nonzero_static(size=...)"},
     {"copies to the host",
      "copy into a pinned tensor with non_blocking=true, record an event, and "
      "read it when the event is done",
      "copy into a pinned tensor with non_blocking=True, record an event and "
      "read it one step later"},
     {"printed tensors", "print every N steps, from a copy on the CPU",
      "print every N steps, from one tensor.cpu() instead of the GPU tensor"}}};

// Returns the kind of read with the most blocked time.
size_t WorstKind(const AnalysisContext& m, const std::vector<ReadKind>& kinds,
                 const WaitFilter& filter) {
  std::array<int64_t, kAdvice.size()> blocked{};
  for (size_t i = 0; i < kinds.size(); ++i) {
    const HostWait& wait = m.waits.all[i];
    if (wait.steady && filter(wait)) {
      blocked[static_cast<size_t>(kinds[i])] += wait.blocked_ns;
    }
  }
  return static_cast<size_t>(std::ranges::max_element(blocked) -
                             blocked.begin());
}

std::string BlockedInWords(const AnalysisContext& m, const WaitSums& sums) {
  return " per step: the launching thread is blocked for " +
         Milliseconds(sums.blocked_ns * 1e-6) + " of the " +
         Milliseconds(m.stats.mean_ms) + " step" +
         (sums.bubble_ns < kLeastIdleNs
              ? std::string(".")
              : ", and the GPU is idle for " +
                    Milliseconds(sums.bubble_ns * 1e-6) +
                    " right after the waits.");
}

// Returns a finding whose proposed change removes the waits in `filter`.
// `fetches`: they only fetch results.
Verdict FireForWaits(const AnalysisContext& m, const WaitFilter& filter,
                     const WaitSums& sums, Finding finding,
                     bool fetches = false) {
  Found found{.finding = std::move(finding),
              .alternatives = {{WithoutWaits(m.waits, filter)}},
              .bound_ns = sums.bound_ns};
  if (fetches) found.at_most = FindingSeverity::kLow;
  DescribeWaits(m, filter, found);
  // Idle time caused by later launches, in addition to that right after the
  // waits.
  const double late = sums.bound_ns - sums.bubble_ns;
  if (late >= kWorthSaying * sums.blocked_ns) {
    found.if_bound.evidence += " The GPU may be idle for up to " +
                               Milliseconds(late * 1e-6) +
                               " more because later launches are delayed.";
  }
  ExplainSmallGain(m, sums, found);
  return Fire(std::move(found));
}

// Returns when downloads were launched, sorted.
std::vector<int64_t> DownloadTimes(const Trace& trace) {
  std::vector<int64_t> times;
  for (const Copy& copy : trace.copies()) {
    if (copy.call != kNone && (copy.destination == MemoryKind::kPinned ||
                               copy.destination == MemoryKind::kPageable)) {
      times.push_back(trace.runtime_calls()[copy.call].begin_ns);
    }
  }
  std::ranges::sort(times);
  return times;
}

// True if most of the blocked time fetches what a model computed, after the
// last launch of a step that trains nothing. Such a read delays no launch of
// its own step: only the next step could be launched before it. `kinds` may be
// empty for a filter that takes explicit waits only.
bool FetchesResults(const AnalysisContext& m,
                    const std::vector<ReadKind>& kinds,
                    const WaitFilter& filter) {
  if (!OnlyInfers(m)) return false;
  const std::vector<std::vector<int64_t>> launches = LaunchTimes(m);
  const std::vector<int64_t> downloads = DownloadTimes(m.trace);
  // True if what was launched last before an explicit wait is a download.
  const auto follows_download = [&](const HostWait& wait) {
    const auto next = std::ranges::lower_bound(downloads, wait.span.begin_ns);
    if (next == downloads.begin()) return false;
    const auto launched =
        std::ranges::upper_bound(launches[wait.step], *(next - 1));
    return launched == launches[wait.step].end() ||
           *launched >= wait.span.begin_ns;
  };
  int64_t blocked_ns = 0, fetching_ns = 0;
  for (size_t i = 0; i < m.waits.all.size(); ++i) {
    const HostWait& wait = m.waits.all[i];
    if (!wait.steady || !filter(wait)) continue;
    blocked_ns += wait.blocked_ns;
    const std::vector<int64_t>& launched = launches[wait.step];
    const bool copies = wait.kind == WaitKind::kExplicit
                            ? follows_download(wait)
                            : kinds[i] == ReadKind::kCopy;
    if (copies && !launched.empty() && launched.back() < wait.span.begin_ns) {
      fetching_ns += wait.blocked_ns;
    }
  }
  return 2 * fetching_ns > blocked_ns;
}

// Returns the blocked time in ns per step of waits whose thread issues an
// all-to-all next, and soon. They read the sizes of its parts.
double SizesOfExchangesNs(const AnalysisContext& m, const WaitFilter& filter) {
  struct Issue {
    RowId thread = kNone;
    int64_t begin_ns = 0;
    bool exchanges = false;
    auto operator<=>(const Issue&) const = default;  // NOLINT(*nullptr)
  };
  std::vector<Issue> issues;
  bool any = false;
  for (const Collective& one : m.collectives) {
    const bool exchanges = one.kind == CollectiveKind::kAllToAll;
    issues.push_back({one.thread, one.issued.begin_ns, exchanges});
    any |= exchanges;
  }
  if (!any) return 0;
  std::ranges::sort(issues);
  double ns = 0;
  for (const HostWait& wait : m.waits.all) {
    if (!wait.steady || !filter(wait)) continue;
    const auto next = std::ranges::lower_bound(
        issues, Issue{wait.thread, wait.span.end_ns, false});
    if (next != issues.end() && next->thread == wait.thread &&
        next->exchanges && next->begin_ns - wait.span.end_ns <= kSoonNs) {
      ns += static_cast<double>(wait.blocked_ns);
    }
  }
  return ns / static_cast<double>(m.steps.steady.size());
}

// Adds that the program needs the sizes at once, and how to have them earlier.
void SaySizesOfExchanges(double ns, Finding& finding) {
  finding.confidence = std::min(finding.confidence, Confidence::kStrong);
  finding.evidence += " " + Milliseconds(ns * 1e-6) +
                      " of that is right before an all-to-all, and probably "
                      "reads the sizes that it needs.";
  constexpr char kEarlier[] =
      "exchange the next batch's inputs while this step computes, so that "
      "their sizes are there in time (TorchRec's TrainPipelineSparseDist); "
      "for other values: ";
  finding.fix_cpp = kEarlier + finding.fix_cpp;
  finding.fix_python = kEarlier + finding.fix_python;
}

// Describes waits that only fetch results.
void SayFetches(Finding& finding) {
  // Whether there is a next input to begin with is not recorded.
  finding.confidence = Confidence::kHint;
  finding.evidence += " They fetch the step's results after its last launch.";
  finding.assumption = "the next step can begin before these results arrive";
  finding.fix_cpp =
      "launch the model on the next inputs before you read these results: "
      "copy them into pinned memory with non_blocking=true, record an event, "
      "and read them when the event is done";
  finding.fix_python =
      "launch the model on the next inputs before you read these results: "
      "copy them into pinned memory with non_blocking=True, record an event, "
      "and read them when the event is done";
  finding.wrong_if = "the next inputs depend on these results.";
}

// True if the waits at the site read values, not the number of results.
bool ReadsValues(const std::vector<ReadKind>& kinds, const WaitSite& site) {
  return std::ranges::none_of(site.waits, [&](size_t wait) {
    return kinds[wait] == ReadKind::kShape || kinds[wait] == ReadKind::kBranch;
  });
}

constexpr const char* kFindSites =
    " To find the places, use c10::cuda::warning_state() in C++ or "
    "torch.cuda.set_sync_debug_mode(\"warn\") in Python.";

Verdict CheckHostSync(const AnalysisContext& m) {
  const std::vector<bool> clips = FindClipping(m).is_clip;
  const WaitFilter filter = [&](const HostWait& wait) {
    // Leave out the waits of clipping, which grad-clip-sync reports.
    return (wait.kind == WaitKind::kToHost || wait.kind == WaitKind::kInOp) &&
           !clips[static_cast<size_t>(&wait - m.waits.all.data())];
  };
  const WaitSums sums = SumWaits(m.waits, m.steps, filter);
  if (sums.blocked_ns * 1e-6 < MinReportableGainMs(m) ||
      !Recurs(sums.once_blocked_frac, m.steps)) {
    return Clean();
  }

  const std::vector<ReadKind> kinds = ReadKinds(m);
  const Advice& advice = kAdvice[WorstKind(m, kinds, filter)];

  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence = MeanCount(sums.count, "blocking read") +
                     " of GPU results (mostly " + advice.what + ")" +
                     BlockedInWords(m, sums);
  finding.assumption = "the next launches do not need the values";
  finding.fix_cpp = advice.cpp;
  finding.fix_python = advice.python;
  finding.wrong_if =
      "the value decides what is launched next in the same step.";
  const std::vector<WaitSite> sites = SitesOf(m, filter);
  if (!sites.empty() && sites[0].per_step >= kReadsOfALoop &&
      ReadsValues(kinds, sites[0])) {
    finding.fix_cpp =
        "read them together: stack them on the device and copy them once; "
        "else " +
        finding.fix_cpp;
    finding.fix_python =
        "read them together, with one .tolist() or .cpu() of the whole batch "
        "in front of the loop; else " +
        finding.fix_python;
  }
  if (!sites.empty() && Contains(sites[0].chain, "SyncBatchNorm")) {
    finding.evidence +=
        " Most of the blocked time is in SyncBatchNorm's own reads.";
    finding.fix_cpp = finding.fix_python =
        "use BatchNorm in place of SyncBatchNorm (do not call "
        "convert_sync_batchnorm()) if each rank has 16 samples or more";
  }
  const double sizes_ns = SizesOfExchangesNs(m, filter);
  if (sizes_ns >= kWorthExchanging * sums.blocked_ns) {
    SaySizesOfExchanges(sizes_ns, finding);
  }
  const bool fetches = FetchesResults(m, kinds, filter);
  if (fetches) SayFetches(finding);
  finding.wrong_if += kFindSites;
  return FireForWaits(m, filter, sums, std::move(finding), fetches);
}

// Returns the share of the waits in `filter` right before which their thread
// called a barrier. Work::wait() of a barrier synchronises the stream.
double ShareOfBarriers(const AnalysisContext& m, const WaitFilter& filter) {
  double waits = 0, barriers = 0;
  for (const HostWait& wait : m.waits.all) {
    if (!wait.steady || !filter(wait) || wait.thread == kNone) continue;
    ++waits;
    const std::span<const RowId> rows = m.tree.of_thread(wait.thread);
    const auto next = std::ranges::lower_bound(
        rows, wait.span.begin_ns, {},
        [&](RowId row) { return m.trace.ops()[row].begin_ns; });
    if (next == rows.begin()) continue;
    const Op& before = m.trace.ops()[OutermostOf(m.trace, *(next - 1))];
    barriers += m.trace.name(before.name) == "c10d::barrier";
  }
  return waits > 0 ? barriers / waits : 0;
}

Verdict CheckExplicitSync(const AnalysisContext& m) {
  const auto is_explicit = [](const HostWait& wait) {
    return wait.kind == WaitKind::kExplicit;
  };
  // Waits at the very end belong to the recorder, unless the loop also
  // synchronises in its other steps.
  std::set<size_t> steps_with;
  for (const HostWait& wait : m.waits.all) {
    if (is_explicit(wait) && !wait.is_last) steps_with.insert(wait.step);
  }
  // The last step proves nothing, because its own wait may be the last of the
  // recording.
  const bool in_most_steps =
      steps_with.size() > kHalfOfSteps * (m.steps.windows.size() - 1.0);
  const WaitFilter filter = [&](const HostWait& wait) {
    return is_explicit(wait) && (in_most_steps || !wait.is_last);
  };
  const WaitSums sums = SumWaits(m.waits, m.steps, filter);
  if (sums.blocked_ns * 1e-6 < MinReportableGainMs(m) ||
      !Recurs(sums.once_blocked_frac, m.steps)) {
    return Clean();
  }

  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence = MeanCount(sums.count, "explicit synchronisation") +
                     BlockedInWords(m, sums);
  finding.assumption = "nothing on the host needs the results at that point";
  finding.fix_cpp =
      "remove it; measure time with events (at::cuda::CUDAEvent) that are read "
      "later, and synchronise only around a benchmark";
  finding.fix_python =
      "remove torch.cuda.synchronize(); measure time with torch.cuda.Event, "
      "read it later, and synchronise only around a benchmark";
  if (ShareOfBarriers(m, filter) > kMostWaits) {
    finding.evidence +=
        " Most of them follow a barrier of all ranks (c10d::barrier).";
    finding.fix_cpp =
        "remove the barriers; reduce all metrics in one tensor every N steps";
    finding.fix_python =
        "remove dist.barrier(); Lightning: self.log(..., sync_dist=False) in "
        "training_step, or on_epoch=True only; reduce all metrics in one "
        "tensor every N steps";
  }
  finding.wrong_if =
      "code outside PyTorch reads GPU memory right after the wait";
  const bool fetches = FetchesResults(m, {}, filter);
  if (fetches) SayFetches(finding);
  return FireForWaits(m, filter, sums, std::move(finding), fetches);
}

Verdict CheckGradClipSync(const AnalysisContext& m) {
  const Clipping clipping = FindClipping(m);
  const WaitFilter filter = Only(m, clipping.is_clip);
  const WaitSums sums = SumWaits(m.waits, m.steps, filter);
  if (sums.blocked_ns * 1e-6 < MinReportableGainMs(m) ||
      !Recurs(sums.once_blocked_frac, m.steps)) {
    return Clean();
  }

  const auto parameters = static_cast<int64_t>(
      m.tree.named("torch::autograd::AccumulateGrad").size());
  // torch._foreach_norm is one op for all tensors. So only a loop over the
  // parameters computes as many norms as there are parameters.
  const bool per_tensor =
      !clipping.scaler && parameters > 0 && clipping.norms >= parameters;
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence =
      MeanCount(sums.count, "blocking read") +
      (clipping.scaler
           ? " of the gradient scaler's check for infinities"
           : " of the gradients' norm (between backward and optimizer)") +
      BlockedInWords(m, sums);
  if (per_tensor) {
    finding.evidence +=
        " The norm is computed tensor by tensor, with one kernel per "
        "parameter.";
  }
  finding.assumption = "the optimizer can use a value that stays on the GPU";
  // bfloat16 has as many exponent bits as float32, so gradients need no
  // scaling.
  const std::string without_scaler =
      HasBf16(m.kernels.device)
          ? "train in bfloat16, which needs no gradient scaler; or "
          : "";
  finding.fix_cpp =
      clipping.scaler ? without_scaler +
                            "let a fused optimizer take found_inf "
                            "on the device"
                      : "at::_foreach_norm, then clamp the factor on the "
                        "device and multiply with at::_foreach_mul_; "
                        "torch::nn::utils::clip_grad_norm_ always calls item()";
  finding.fix_python =
      clipping.scaler
          ? without_scaler +
                "give the optimizer fused=True, so that it takes "
                "found_inf on the device"
          : "clip_grad_norm_ without error_if_nonfinite, and keep the norm it "
            "returns on the GPU";
  // Clipping and the scaler read once each.
  if (!clipping.scaler && sums.count > kReadsOfClipping) {
    finding.fix_cpp =
        "at::stack the statistics of all parameters and read them once, every "
        "N steps; to clip, " +
        finding.fix_cpp;
    finding.fix_python =
        "torch.stack the statistics of all parameters and read them once, "
        "every N steps; to clip, " +
        finding.fix_python;
  }
  finding.wrong_if = "the loop must skip a step as soon as it sees the norm";
  return FireForWaits(m, filter, sums, std::move(finding));
}

constexpr Rule kRules[] = {
    {.id = "host-sync",
     .question = "Do reads of GPU results delay later launches?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kRuntimeCall},
     .causes = {Cause::kSync, Cause::kBlockingCopy},
     .check = &CheckHostSync,
     .reference = "PyTorch Performance Tuning Guide: Avoid unnecessary CPU-GPU "
                  "synchronization",
     .detect = "removing the waits would gain 1 % of the step or more (the "
               "noise of a steady step), as predicted by replay or bounded by "
               "the GPU's idle time right after the waits. The blocked time is "
               "printed, but is not counted as a gain",
     .avoid =
         "the GPU is busy during the waits, the values are read every N steps, "
         "or the waits are outside the steps. Fetching the results of a model "
         "that only runs, after the last launch of a step, is a hint. "
         "grad-clip-sync covers gradient "
         "clipping and scaling, h2d-blocking covers uploads",
     .fix_cpp = "keep values on the device, or copy to pinned memory with "
                "non_blocking and an event; no item<T>() in the loop",
     .fix_python = "keep metrics on the GPU and read them every N steps; no "
                   ".item() in the loop",
     .change = "no waiting for the GPU's results"},
    {.id = "explicit-sync",
     .question = "Does the program wait for the whole GPU in every step?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kRuntimeCall},
     .causes = {Cause::kSync},
     .check = &CheckExplicitSync,
     .reference = "PyTorch Performance Tuning Guide: Avoid unnecessary CPU-GPU "
                  "synchronization",
     .detect = "the removal of device, stream or event synchronisation outside "
               "copies and ops would gain 1 % of the step or more",
     .avoid =
         "the wait is the recorder's own at the end of its window, the GPU is "
         "busy during the waits, or the waiting thread launches nothing",
     .fix_cpp = "remove it; measure time with events that are read later",
     .fix_python =
         "remove torch.cuda.synchronize(); measure time with torch.cuda.Event",
     .change = "no explicit synchronisation"},
    {.id = "grad-clip-sync",
     .question = "Does gradient clipping or scaling wait for the GPU?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kRuntimeCall, Kind::kOp},
     .causes = {Cause::kSync, Cause::kBlockingCopy},
     .check = &CheckGradClipSync,
     .reference = "17 tips for faster training, numbers 4 (GradScaler) and 14 "
                  "(gradient clipping)",
     .detect = "a scalar is read between the last backward node and the "
               "optimizer, after a norm or a check for infinities, and "
               "removing the wait would gain 1 % of the step or more",
     .avoid = "the program clips with Python's defaults, which read nothing "
              "back, or reads metrics after the optimizer (host-sync)",
     .fix_cpp = "at::_foreach_norm, clamp and at::_foreach_mul_ on the device",
     .fix_python = "clip_grad_norm_ without error_if_nonfinite; bfloat16 needs "
                   "no scaler",
     .change = "gradients clipped without waiting"}};

}  // namespace
}  // namespace synchronisation_rules

extern const std::span<const Rule> kSynchronisation =
    synchronisation_rules::kRules;

}  // namespace stepscope
