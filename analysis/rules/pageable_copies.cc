// Do copies from or into pageable host memory hold up the step?
// Sources: PyTorch Performance Tuning Guide, "Enable asynchronous data loading
// and augmentation" (pin_memory); the ResNet-18 case study, step 4. The driver
// stages pageable copies below 64 KiB without waiting. 1 MiB takes 0.2 ms at
// 4.4 GB/s, the rate measured for pageable memory.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "device/gaps.h"
#include "evidence/host_copies.h"
#include "evidence/wait_sites.h"
#include "evidence/weights_on_host.h"
#include "ops/backward_nodes.h"
#include "ops/intervals.h"
#include "ops/loader_spans.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"
#include "words/quantities.h"

namespace stepscope {
namespace pageable_copies_rules {
namespace {

constexpr int64_t kStagedBytes = 64 << 10;
constexpr int64_t kPageableBytes = 1 << 20;

// The texts of CheckPageable() for one direction.
struct PageableTexts {
  Direction direction;
  Confidence confidence;
  WaitKind wait;
  const char* noun;     // "upload"
  const char* place;    // "from pageable memory"
  const char* unknown;  // why the rule is skipped
  const char* fix_cpp;
  const char* fix_python;
  const char* wrong_if;
};
constexpr PageableTexts kUploadTexts = {
    .direction = Direction::kToDevice,
    .confidence = Confidence::kProven,
    .wait = WaitKind::kToDevice,
    .noun = "upload",
    .place = "from pageable memory",
    .unknown =
        "the trace does not show whether copies read from pinned host memory",
    .fix_cpp =
        "collate into torch::TensorOptions().pinned_memory(true) in the "
        "loader's workers, then call .to(device, dtype, "
        "/*non_blocking=*/true)",
    .fix_python =
        "use DataLoader(..., pin_memory=True) and batch.to(device, "
        "non_blocking=True)",
    .wrong_if = "the host must read or change the buffer right after the copy"};
constexpr PageableTexts kDownloadTexts = {
    .direction = Direction::kToHost,
    // No recording shows when the host reads the result.
    .confidence = Confidence::kHint,
    .wait = WaitKind::kToHost,
    .noun = "download",
    .place = "into pageable memory",
    .unknown =
        "the trace does not show whether copies write to pinned host memory",
    .fix_cpp =
        "copy into a pinned tensor that is reused, "
        "host.copy_(result, /*non_blocking=*/true), and synchronise with an "
        "event before it is read; keep on the device what the host does not "
        "need",
    .fix_python =
        "copy into a pinned tensor that is reused (torch.empty_like(result, "
        "device=\"cpu\", pin_memory=True)), host.copy_(result, "
        "non_blocking=True), and wait for a torch.cuda.Event before it is "
        "read; keep on the device what the host does not need",
    .wrong_if = "the host needs the result at once"};

// Returns the edit after which no copy in the filter holds up the host, and
// each such copy takes `factor` times as long.
Edit FromPinned(const AnalysisContext& m, const std::vector<HostCopy>& copies,
                const HostCopyFilter& filter, double factor, bool assumed) {
  Edit edit;
  for (const HostCopy& one : copies) {
    if (!filter(one)) continue;
    edit.scales.push_back({{ActivityTable::kCopy, one.copy}, factor, assumed});
    if (one.wait == SIZE_MAX) continue;
    const HostWait& wait = m.waits.all[one.wait];
    for (RowId call : {wait.copy_call, wait.sync_call}) {
      if (call != kNone) edit.no_wait.push_back(call);
    }
  }
  return edit;
}

// Returns for how long per step the GPU is idle while the host works right
// after one of `downloads`, before the next op that launches something. Apart
// from taking a batch, the host then most likely computes with what was
// downloaded, as NumPy would.
double IdleAfterNs(const AnalysisContext& m,
                   const std::vector<const HostCopy*>& downloads) {
  const std::vector<bool> launches = OpsThatLaunch(m.trace);
  std::vector<Span> pauses;
  for (const HostCopy* one : downloads) {
    const RowId call = m.trace.copies()[one->copy].call;
    if (call == kNone) continue;
    const RowId inner = m.trace.runtime_calls()[call].op;
    if (inner == kNone) continue;
    const Op& op = m.trace.ops()[OutermostOf(m.trace, inner)];
    if (op.thread != m.steps.thread) continue;
    const auto later = m.tree.of_thread(op.thread, {op.end_ns, INT64_MAX});
    const auto launch =
        std::ranges::find_if(later, [&](RowId row) { return launches[row]; });
    if (launch == later.end()) continue;
    const int64_t next = m.trace.ops()[*launch].begin_ns;
    if (next - op.end_ns > kFrameworkGapNs) pauses.push_back({op.end_ns, next});
  }
  pauses =
      Subtract(Merge(std::move(pauses)), LoaderSpans(m.trace, m.steps.thread));
  const std::vector<Span> idle = Merge(IdleSpans(m.waits.idle));
  return static_cast<double>(Length(Intersect(pauses, idle))) /
         static_cast<double>(m.steps.steady.size());
}

std::vector<const HostCopy*> Steady(const std::vector<HostCopy>& copies,
                                    const HostCopyFilter& filter) {
  std::vector<const HostCopy*> chosen;
  for (const HostCopy& one : copies) {
    if (one.steady && filter(one)) chosen.push_back(&one);
  }
  return chosen;
}

// How long the copies hold up the host, or run while no kernel does.
double CopyNs(const AnalysisContext& m, const std::vector<HostCopy>& copies,
              const HostCopyFilter& filter) {
  const HostCopySums all = SumHostCopies(m, copies, filter);
  return all.held_ns + all.queued_ns + all.exposed_ns;
}

// Accepts copies of at least 64 KiB between the device and pageable memory.
HostCopyFilter LargePageable(const AnalysisContext& m, Direction direction) {
  return [&m, direction](const HostCopy& one) {
    const Copy& copy = m.trace.copies()[one.copy];
    return HostMemoryOf(copy, direction) == MemoryKind::kPageable &&
           copy.bytes >= kStagedBytes;
  };
}

Verdict CheckPageable(const AnalysisContext& m, const PageableTexts& texts) {
  const std::vector<HostCopy> copies = FindHostCopies(m, texts.direction);
  const auto memory_of = [&](const HostCopy& one) {
    return HostMemoryOf(m.trace.copies()[one.copy], texts.direction);
  };
  // Some traces report host memory without saying whether it is pinned.
  if (!copies.empty() && std::ranges::all_of(copies, [&](const HostCopy& one) {
        return memory_of(one) == MemoryKind::kHost;
      })) {
    return Skip(texts.unknown);
  }
  const HostCopyFilter pageable = [&](const HostCopy& one) {
    return memory_of(one) == MemoryKind::kPageable;
  };
  const HostCopyFilter filter = LargePageable(m, texts.direction);
  if (ShareOfStepsWith(m, copies, filter, kPageableBytes) < kMostSteps) {
    return Clean();
  }
  const HostCopySums sums = SumHostCopies(m, copies, filter);
  // GB/s equals bytes per ns.
  const double rate = sums.bytes / std::max(sums.copy_ns, 1.0);
  const BusRate pinned = PinnedRate(m.trace, texts.direction);
  const double factor =
      pinned.gb_per_s > 0 ? std::min(1.0, rate / pinned.gb_per_s) : 1.0;
  // Pinned memory saves the time in which the host is blocked, and part of the
  // time of copies that no kernel hides. It saves no more than the copies take,
  // on the host or on the device.
  double bound = std::min(sums.held_ns + (1 - factor) * sums.exposed_ns,
                          std::max(sums.held_ns, sums.exposed_ns));
  const std::vector<const HostCopy*> copied = Steady(copies, filter);
  const double after =
      texts.direction == Direction::kToHost ? IdleAfterNs(m, copied) : 0;
  const bool computes = after * 1e-6 >= MinReportableGainMs(m);
  if (computes) bound += after;
  const bool up = texts.direction == Direction::kToDevice;
  const Direction other = up ? Direction::kToHost : Direction::kToDevice;
  const std::vector<HostCopy> back = FindHostCopies(m, other);
  const std::vector<const HostCopy*> others =
      Steady(back, LargePageable(m, other));
  const WeightsOnHost weights = up ? FindWeightsOnHost(m, copied, others)
                                   : FindWeightsOnHost(m, others, copied);
  // h2d-pageable counts both directions.
  if (!up && weights == WeightsOnHost::kAndBack) return Clean();
  const bool offloads = up && weights != WeightsOnHost::kNone;
  // Other downloads are results.
  std::set<int64_t> sizes;
  for (const HostCopy* one : copied) {
    sizes.insert(m.trace.copies()[one->copy].bytes);
  }
  const HostCopyFilter returned = [&](const HostCopy& one) {
    return sizes.contains(m.trace.copies()[one.copy].bytes);
  };
  if (offloads) {
    bound = CopyNs(m, copies, pageable);
    if (weights == WeightsOnHost::kAndBack) {
      bound += CopyNs(m, back, returned);
    }
    bound = std::min(bound, m.step_ns() - m.MeanNs(Cause::kCompute));
  }
  if (bound * 1e-6 < MinReportableGainMs(m)) return Clean();

  Finding finding;
  finding.confidence = texts.confidence;
  finding.evidence = MeanCount(sums.count, texts.noun) + " per step " +
                     texts.place + ": " + Bytes(sums.bytes) + " in " +
                     Milliseconds(sums.copy_ns * 1e-6) + " at " +
                     Bandwidth(rate) + ". This blocks the host for " +
                     Milliseconds((sums.held_ns + sums.queued_ns) * 1e-6) +
                     " of the " + Milliseconds(m.stats.mean_ms) + " step.";
  finding.assumption =
      "nothing needs the copied data immediately, and copies " +
      std::string(texts.direction == Direction::kToDevice ? "from" : "into") +
      " pinned memory run at " +
      (pinned.gb_per_s <= 0
           ? std::string("the same rate (the rate of the device's bus is "
                         "unknown)")
       : pinned.measured
           ? Bandwidth(pinned.gb_per_s) + ", as measured in this run"
           : Bandwidth(pinned.gb_per_s) +
                 ", the usual rate of this device's bus");
  finding.fix_cpp = texts.fix_cpp;
  finding.fix_python = texts.fix_python;
  finding.wrong_if = texts.wrong_if;
  if (computes) {
    finding.confidence = Confidence::kStrong;
    finding.evidence += " Right after it, the GPU is idle for another " +
                        Milliseconds(after * 1e-6) +
                        " while the host works, probably on what was "
                        "downloaded.";
    finding.assumption =
        "at best: the device computes the result in no time, and downloading "
        "it takes none; " +
        finding.assumption;
    finding.fix_cpp =
        "compute the result on the device and download only that; " +
        finding.fix_cpp;
    finding.fix_python =
        "compute the result on the device and download only that, as in "
        "logits.argmax(1).cpu(), or every N steps; " +
        finding.fix_python;
  }
  if (offloads) {
    finding.confidence = Confidence::kStrong;
    finding.evidence +=
        weights == WeightsOnHost::kByLayer
            ? " They alternate with kernels, like uploads of weights that are "
              "kept on the host (CPU offload)."
            : " The same sizes are downloaded again, so they are probably "
              "weights that move to the device and back (CPU offload): with "
              "the downloads, the copies take " +
                  Milliseconds((SumHostCopies(m, copies, pageable).copy_ns +
                                SumHostCopies(m, back, returned).copy_ns) *
                               1e-6) +
                  ".";
    finding.assumption = "the weights stay on the device";
    finding.fix_cpp =
        "keep the weights on the device; if they do not fit, keep them in 8 or "
        "4 bits, or upload the next layer from pinned memory on a second "
        "stream while this one computes";
    finding.fix_python =
        weights == WeightsOnHost::kByLayer
            ? "keep the weights on the GPU: model.to(\"cuda\") without "
              "enable_sequential_cpu_offload() or offload in the device map; "
              "if they do not fit, enable_model_cpu_offload() or group "
              "offloading with a stream (diffusers), or weights in 8 or 4 bits"
            : "keep the models on the GPU: pipe.to(\"cuda\") without "
              "enable_model_cpu_offload(); if they do not fit, group "
              "offloading with a stream (diffusers), or weights in 8 or 4 bits";
    finding.wrong_if = "the weights do not fit on the device";
  }
  const WaitFilter waits = [&](const HostWait& wait) {
    return wait.kind == texts.wait && wait.copy != kNone &&
           filter({.copy = wait.copy});
  };
  Found found{.finding = std::move(finding), .bound_ns = bound};
  // The replay cannot tell whether the host can do without a result for a
  // while.
  if (offloads) {
    Edit edit = FromPinned(m, copies, pageable, 0, /*assumed=*/false);
    if (weights == WeightsOnHost::kAndBack) {
      edit = Combine(std::move(edit),
                     FromPinned(m, back, returned, 0, /*assumed=*/false));
    }
    found.alternatives = {{std::move(edit)}};
  } else if (up) {
    found.alternatives = {{FromPinned(m, copies, filter, factor,
                                      /*assumed=*/!pinned.measured)}};
  }
  DescribeWaits(m, waits, found);
  if (found.finding.examples.empty()) AddCopyExamples(m, copied, found.finding);
  return Fire(std::move(found));
}

Verdict CheckUploads(const AnalysisContext& m) {
  return CheckPageable(m, kUploadTexts);
}

Verdict CheckDownloads(const AnalysisContext& m) {
  return CheckPageable(m, kDownloadTexts);
}

constexpr Rule kRules[] = {
    {.id = "h2d-pageable",
     .question = "Are batches uploaded from pageable memory?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kCopy, Kind::kRuntimeCall},
     .causes = {Cause::kBlockingCopy, Cause::kCopy},
     .check = &CheckUploads,
     .reference = "PyTorch Performance Tuning Guide: Enable asynchronous data "
                  "loading and augmentation (pin_memory)",
     .detect = "uploads of at least 64 KiB from pageable memory add up to at "
               "least 1 MiB per step in two thirds of the steps, and pinning "
               "saves at least 1 % of the step. If 16 uploads or more of four "
               "sizes or more alternate with kernels, or are downloaded again "
               "by a program that trains nothing, they are weights that are "
               "kept on the host, and the change is to keep them on the "
               "device",
     .avoid =
         "uploads are smaller (the driver stages these without waiting); "
         "they lie in the first step or outside steps; or the trace does not "
         "distinguish pinned from pageable memory",
     .fix_cpp = "collate into pinned memory, then call .to(device, dtype, "
                "/*non_blocking=*/true)",
     .fix_python = "use DataLoader(pin_memory=True) and .to(device, "
                   "non_blocking=True)",
     .change = "uploads that do not block"},
    {.id = "d2h-pageable",
     .question = "Are results downloaded into pageable memory?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kCopy, Kind::kRuntimeCall},
     .causes = {Cause::kBlockingCopy, Cause::kCopy},
     .check = &CheckDownloads,
     .reference = "PyTorch tutorial, A guide on good usage of non_blocking and "
                  "pin_memory: https://docs.pytorch.org/tutorials/"
                  "intermediate/pinmem_nonblock.html",
     .detect = "downloads of at least 64 KiB into pageable memory add up to at "
               "least 1 MiB per step in two thirds of the steps, and pinning "
               "saves at least 1 % of the step",
     .avoid = "downloads are smaller; they lie outside steps; or the trace "
              "does not distinguish pinned from pageable memory",
     .fix_cpp =
         "copy into a pinned tensor, non_blocking, and wait for an event "
         "before reading it",
     .fix_python = "copy into a pinned tensor, non_blocking=True, and wait for "
                   "a torch.cuda.Event before reading it",
     .change = "downloads into pinned memory"}};

}  // namespace
}  // namespace pageable_copies_rules

extern const std::span<const Rule> kPageableCopies =
    pageable_copies_rules::kRules;

}  // namespace stepscope
