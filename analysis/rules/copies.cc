// Do copies to the device hold up the step?
// Sources: PyTorch Performance Tuning Guide, "Enable asynchronous data loading
// and augmentation" (pin_memory); the ResNet-18 case study, steps 2 and 4; "17
// tips", number 7. Below 64 KiB the driver stages pageable memory without
// waiting; 1 MiB is 0.2 ms at the 4.4 GB/s seen for pageable memory.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/uploads.h"
#include "evidence/wait_sites.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr int64_t kStagedBytes = 64 << 10;
constexpr int64_t kPageableBytes = 1 << 20;
constexpr int64_t kDrainNs = 10'000;
constexpr double kMostSteps = 2.0 / 3;
constexpr double kLoaderShare = 0.05;

std::string Rate(double gb_per_s) { return Number(gb_per_s) + " GB/s"; }

std::string Uploads(double per_step) {
  const double rounded = std::round(per_step);
  if (rounded >= 1 && std::abs(per_step - rounded) < 0.05) {
    return Count(static_cast<int64_t>(rounded), "upload");
  }
  return Number(per_step) + " uploads";
}

// At most 3 of the longest.
void AddExamples(const AnalysisContext& m, std::vector<const Upload*> uploads,
                 Finding& finding) {
  const auto length = [&](const Upload* upload) {
    const Copy& copy = m.trace.copies()[upload->copy];
    return copy.end_ns - copy.begin_ns;
  };
  std::ranges::stable_sort(uploads, std::greater(), length);
  for (size_t i = 0; i < std::min<size_t>(3, uploads.size()); ++i) {
    const Copy& copy = m.trace.copies()[uploads[i]->copy];
    finding.examples.push_back(
        {m.steps.windows[uploads[i]->step].number, copy.begin_ns, copy.end_ns,
         (copy.bytes > 0 ? Bytes(static_cast<double>(copy.bytes)) + " by "
                         : std::string()) +
             (copy.op == kNone
                  ? std::string("a copy")
                  : std::string(m.trace.name(m.trace.ops()[copy.op].name)))});
  }
}

bool KnowsPinning(const AnalysisContext& m,
                  const std::vector<Upload>& uploads) {
  return std::ranges::any_of(uploads, [&](const Upload& upload) {
    const MemoryKind source = m.trace.copies()[upload.copy].source;
    return source == MemoryKind::kPageable || source == MemoryKind::kPinned;
  });
}

Verdict CheckPageable(const AnalysisContext& m) {
  const std::vector<Upload> uploads = FindUploads(m);
  if (!uploads.empty() && !KnowsPinning(m, uploads)) {
    return Skip(
        "the trace does not say whether the host memory of copies was pinned");
  }
  const UploadFilter filter = [&](const Upload& upload) {
    const Copy& copy = m.trace.copies()[upload.copy];
    return copy.source == MemoryKind::kPageable && copy.bytes >= kStagedBytes;
  };
  if (ShareOfStepsWith(m, uploads, filter, kPageableBytes) < kMostSteps) {
    return Clean();
  }
  const UploadSums sums = SumUploads(m, uploads, filter);
  const double rate = sums.bytes / std::max(sums.copy_ns, 1.0);
  const BusRate pinned = PinnedRate(m.trace);
  const double factor =
      pinned.gb_per_s > 0 ? std::min(1.0, rate / pinned.gb_per_s) : 1.0;
  const double bound = sums.held_ns + (1 - factor) * sums.exposed_ns;
  if (bound * 1e-6 < MinReportableGainMs(m)) return Clean();

  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence = Uploads(sums.count) + " per step from pageable memory, " +
                     Bytes(sums.bytes) + " in " +
                     Milliseconds(sums.copy_ns * 1e-6) + " at " + Rate(rate) +
                     "; the host is held for " +
                     Milliseconds((sums.held_ns + sums.queued_ns) * 1e-6) +
                     " of the " + Milliseconds(m.stats.mean_ms) + " step.";
  finding.assumption =
      "nothing needs the copy at once, and pinned memory is copied at " +
      (pinned.gb_per_s <= 0 ? std::string("the same rate (the device's bus is "
                                          "not known)")
       : pinned.measured    ? Rate(pinned.gb_per_s) + ", as in this run"
                            : Rate(pinned.gb_per_s) +
                               ", as this device's bus "
                               "usually gives");
  finding.fix_cpp =
      "collate into torch::TensorOptions().pinned_memory(true) in the loader's "
      "workers, then .to(device, dtype, /*non_blocking=*/true)";
  finding.fix_python =
      "DataLoader(..., pin_memory=True) and batch.to(device, "
      "non_blocking=True)";
  finding.wrong_if =
      "the host must read or change the buffer right after the copy";

  Edit edit;
  std::vector<const Upload*> copied;
  for (const Upload& upload : uploads) {
    if (!filter(upload)) continue;
    edit.scales.push_back({{ActivityTable::kCopy, upload.copy}, factor});
    if (upload.steady) copied.push_back(&upload);
    if (upload.wait == SIZE_MAX) continue;
    const HostWait& wait = m.waits.all[upload.wait];
    for (RowId call : {wait.copy_call, wait.sync_call}) {
      if (call != kNone) edit.no_wait.push_back(call);
    }
  }
  const WaitFilter waits = [&](const HostWait& wait) {
    return wait.kind == WaitKind::kToDevice && wait.copy != kNone &&
           filter({.copy = wait.copy});
  };
  Found found{.finding = std::move(finding),
              .alternatives = {{std::move(edit)}},
              .bound_ns = bound};
  DescribeWaits(m, waits, found);
  if (found.finding.examples.empty()) AddExamples(m, copied, found.finding);
  return Fire(std::move(found));
}

// Copies that block although little is copied: they wait for what was queued
// before them.
struct Drains {
  WaitFilter filter = [](const HostWait& wait) {
    return wait.kind == WaitKind::kToDevice && wait.queued_ns >= kDrainNs;
  };
  WaitSums sums;
  bool fires = false;
};

// Copies that nobody waits for, in line with the kernels.
struct InLine {
  UploadFilter filter = [](const Upload& upload) {
    return upload.wait == SIZE_MAX && upload.on_compute_stream;
  };
  UploadSums sums;
  double hideable_ns = 0;
  bool fires = false;
};

double KernelNsPerStep(const AnalysisContext& m) {
  const std::vector<Span> kernels =
      KernelSpans(m.trace, m.ledger->device, false);
  double ns = 0;
  for (size_t i : m.steps.steady) {
    ns += static_cast<double>(LengthIn(kernels, m.steps.windows[i].tiled));
  }
  return ns / static_cast<double>(m.steps.steady.size());
}

Verdict CheckBlocking(const AnalysisContext& m) {
  const std::vector<Upload> uploads = FindUploads(m);
  Drains drains;
  drains.sums = SumWaits(m.waits, m.steps, drains.filter);
  drains.fires = drains.sums.queued_ns * 1e-6 >= MinReportableGainMs(m) &&
                 Recurs(drains.sums.once_queued_frac, m.steps);
  InLine in_line;
  in_line.sums = SumUploads(m, uploads, in_line.filter);
  in_line.hideable_ns = std::min(in_line.sums.exposed_ns, KernelNsPerStep(m));
  in_line.fires = in_line.hideable_ns * 1e-6 >= MinReportableGainMs(m);
  if (!drains.fires && !in_line.fires) return Clean();

  Finding finding;
  finding.confidence = Confidence::kProven;
  Edit edit;
  if (drains.fires) {
    edit = WithoutWaits(m.waits, drains.filter);
    finding.evidence =
        Uploads(drains.sums.count) + " per step hold the host for " +
        Milliseconds(drains.sums.blocked_ns * 1e-6) + " of the " +
        Milliseconds(m.stats.mean_ms) +
        " step, not to copy but to wait for what was launched before them.";
    const double data = m.MeanNs(Cause::kData);
    if (data >= kLoaderShare * m.step_ns()) {
      finding.evidence += " Without the wait the next batch (" +
                          Milliseconds(data * 1e-6) +
                          " of loading per step) could be made meanwhile.";
    }
    finding.fix_cpp =
        "pin the source and pass /*non_blocking=*/true; create constants on "
        "the device";
    finding.fix_python =
        "pin_memory=True and .to(device, non_blocking=True); create constants "
        "with device=\"cuda\"";
  }
  if (in_line.fires) {
    std::vector<const Upload*> copied;
    for (const Upload& upload : uploads) {
      if (!in_line.filter(upload)) continue;
      edit.side_stream.push_back({ActivityTable::kCopy, upload.copy});
      if (upload.steady) copied.push_back(&upload);
    }
    finding.evidence += (finding.evidence.empty() ? "" : " ") +
                        Uploads(in_line.sums.count) + " per step (" +
                        Milliseconds(in_line.sums.exposed_ns * 1e-6) +
                        ") run in line with the kernels, which wait meanwhile.";
    const char* cpp =
        "copy the next batch on a stream of its own "
        "(c10::cuda::CUDAStreamGuard), let the compute stream wait for an "
        "event, and recordStream() the tensor";
    const char* python =
        "copy the next batch under torch.cuda.stream(side), then "
        "wait_stream(side) and record_stream()";
    finding.fix_cpp += (finding.fix_cpp.empty() ? "" : "; ") + std::string(cpp);
    finding.fix_python +=
        (finding.fix_python.empty() ? "" : "; ") + std::string(python);
    if (!drains.fires) AddExamples(m, copied, finding);
  }
  finding.assumption =
      "the pinned buffer is not overwritten before its copy is done";
  finding.wrong_if = "the data exists only after the last kernel has ended";
  std::vector<Example> examples = finding.examples;
  Found found{.finding = std::move(finding),
              .alternatives = {{std::move(edit)}},
              .bound_ns = (drains.fires ? drains.sums.bound_ns : 0) +
                          (in_line.fires ? in_line.hideable_ns : 0)};
  DescribeWaits(m, drains.filter, found);
  if (!drains.fires) {
    found.finding.examples = std::move(examples);
    found.finding.where.clear();
  }
  ExplainSmallGain(m, drains.sums, found);
  return Fire(std::move(found));
}

constexpr Rule kRules[] = {
    {.id = "h2d-pageable",
     .question = "Are batches uploaded from pageable memory?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kCopy, Kind::kRuntimeCall},
     .check = &CheckPageable,
     .reference = "PyTorch Performance Tuning Guide: Enable asynchronous data "
                  "loading and augmentation (pin_memory)",
     .detect = "Uploads of 64 KiB and more from pageable memory, 1 MiB per "
               "step or more in two thirds of the steps, whose pinning wins 1 "
               "% of the step or more.",
     .avoid = "Smaller uploads, which the driver stages; the first step and "
              "what lies outside steps; traces that do not tell pinned from "
              "pageable.",
     .fix_cpp = "Collate into pinned memory, then .to(device, dtype, "
                "/*non_blocking=*/true).",
     .fix_python = "DataLoader(pin_memory=True), .to(device, "
                   "non_blocking=True)."},
    {.id = "h2d-blocking",
     .question = "Do uploads make the host or the kernels wait?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kCopy, Kind::kRuntimeCall},
     .check = &CheckBlocking,
     .reference = "17 tips, number 7; the ResNet-18 case study, step 2: "
                  "https://towardsdatascience.com/"
                  "pytorch-model-performance-analysis-and-optimization-"
                  "10c3c5822869",
     .detect = "Blocking uploads of any size behind queued work, or "
               "asynchronous ones in line with the kernels, whose removal "
               "wins 1 % of the step or more.",
     .avoid = "Uploads with nothing queued before them, uploads on a stream of "
              "their own, uploads kernels hide.",
     .fix_cpp = "Pin and pass non_blocking; copy ahead on a stream of its own "
                "with an event and recordStream().",
     .fix_python = "Pin and pass non_blocking; copy ahead under "
                   "torch.cuda.stream() with record_stream()."}};

}  // namespace

extern const std::span<const Rule> kCopies = kRules;

}  // namespace stepscope
