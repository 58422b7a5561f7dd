// Do copies between the host and the device take too long, or make others wait?
// Sources: the ResNet-18 case study, step 2; "17 tips", number 7; CUDA C++ Best
// Practices Guide, 10.1.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "device/gaps.h"
#include "evidence/host_copies.h"
#include "evidence/wait_sites.h"
#include "ops/intervals.h"
#include "words/quantities.h"

namespace stepscope {
namespace copies_rules {
namespace {

constexpr int64_t kLargeBytes = 1 << 20;  // below, latency counts as well
constexpr int64_t kDrainNs = 10'000;
constexpr int64_t kSoonNs = 50'000;  // work that awaits an event starts sooner
constexpr double kLoaderShare = 0.05;
// Below this share of the step, pinned uploads on the compute stream, as every
// guide has them, are no more than low.
constexpr double kWorthAStream = 0.10;
// Share of the usual rate of the device's bus. Half of the rate is what a slot
// with half the lanes, or of the previous PCIe generation, reaches.
constexpr double kSlowBus = 0.5;

std::string Uploads(double per_step) { return MeanCount(per_step, "upload"); }

// Returns `one` for a single upload per step, otherwise `many`.
const char* VerbFor(double per_step, const char* one, const char* many) {
  return Uploads(per_step) == "1 upload" ? one : many;
}

// Large copies between pinned memory and the device, in steady steps.
struct PinnedCopies {
  std::vector<const HostCopy*> copies = {};
  double count = 0, bytes = 0, ns = 0;  // per steady step
  double exposed_ns = 0;  // time in which such a copy but no kernel runs
};

PinnedCopies LargePinnedCopies(const AnalysisContext& m,
                               const std::vector<HostCopy>& both) {
  PinnedCopies found;
  std::vector<Span> spans;
  for (const HostCopy& one : both) {
    const Copy& copy = m.trace.copies()[one.copy];
    if (!one.steady || copy.bytes < kLargeBytes ||
        (copy.source != MemoryKind::kPinned &&
         copy.destination != MemoryKind::kPinned)) {
      continue;
    }
    found.copies.push_back(&one);
    found.bytes += static_cast<double>(copy.bytes);
    found.ns += static_cast<double>(copy.end_ns - copy.begin_ns);
    spans.push_back({copy.begin_ns, copy.end_ns});
  }
  spans = Merge(std::move(spans));
  const auto steps = static_cast<double>(m.steps.steady.size());
  const int64_t hidden = Length(Intersect(spans, m.ledger->kernels));
  found.exposed_ns = static_cast<double>(Length(spans) - hidden) / steps;
  found.count = static_cast<double>(found.copies.size()) / steps;
  found.bytes /= steps;
  found.ns /= steps;
  return found;
}

Verdict CheckSlowBus(const AnalysisContext& m) {
  const double usual = DeviceBusRate(m.trace);
  if (usual <= 0) return Skip("the usual rate of this device's bus is unknown");
  std::vector<HostCopy> both = FindHostCopies(m, Direction::kToDevice);
  for (const HostCopy& one : FindHostCopies(m, Direction::kToHost)) {
    both.push_back(one);
  }
  const PinnedCopies pinned = LargePinnedCopies(m, both);
  if (pinned.copies.empty()) return Clean();
  const double rate = pinned.bytes / std::max(pinned.ns, 1.0);
  // Copies hidden by kernels gain nothing. The rest becomes shorter as the rate
  // grows.
  const double bound = (1 - rate / usual) * pinned.exposed_ns;
  if (rate >= kSlowBus * usual || bound * 1e-6 < MinReportableGainMs(m)) {
    return Clean();
  }
  Finding finding;
  finding.confidence = Confidence::kHint;
  finding.evidence =
      MeanCount(pinned.count, "copy", "copies") +
      " per step between pinned memory and the device, " + Bytes(pinned.bytes) +
      " in " + Milliseconds(pinned.ns * 1e-6) + " of copying, run at " +
      Bandwidth(rate) + "; the bus of this device usually carries about " +
      Bandwidth(usual) + ". For " + Milliseconds(pinned.exposed_ns * 1e-6) +
      " of the " + Milliseconds(m.stats.mean_ms) + " step, " +
      (m.trace.kernels().empty() ? "one or several of them run."
                                 : "no kernel runs at the same time.");
  AddCopyExamples(m, pinned.copies, finding);
  finding.assumption = "at best: the bus reaches its usual rate";
  finding.fix_cpp = finding.fix_python =
      "find out what limits the bus: nvidia-smi "
      "--query-gpu=pcie.link.gen.current,"
      "pcie.link.width.current --format=csv under load (lanes), nvidia-smi "
      "topo -m with numactl --cpunodebind=N --membind=N (memory of the other "
      "socket), copies of other devices behind the same switch; or copy less: "
      "8- or 16-bit inputs, results reduced on the device";
  finding.wrong_if =
      "the device has fewer lanes by design, its board is of an older PCIe "
      "generation, or the machine is a rented one that shares the bus";
  return FireBound(std::move(finding), bound);
}

// Blocking uploads that wait for work queued before them. Even an upload of a
// few bytes waits until the queue is empty.
struct QueueWaits {
  WaitFilter filter = [](const HostWait& wait) {
    return wait.kind == WaitKind::kToDevice && wait.queued_ns >= kDrainNs;
  };
  WaitSums sums;
  bool fires = false;
};

// True if the copy starts well after it was issued, and a kernel that was
// launched before the copy's end starts only when the copy ends.
bool WaitsAndIsAwaited(const AnalysisContext& m, RowId row) {
  const Copy& copy = m.trace.copies()[row];
  if (copy.call == kNone ||
      copy.begin_ns - m.trace.runtime_calls()[copy.call].end_ns < kSoonNs) {
    return false;
  }
  const auto kernels = m.trace.kernels();
  const auto next = std::ranges::lower_bound(kernels, copy.end_ns - kSoonNs, {},
                                             &Kernel::begin_ns);
  return next != kernels.end() && next->begin_ns < copy.end_ns + kSoonNs &&
         next->call != kNone &&
         m.trace.runtime_calls()[next->call].end_ns < copy.end_ns;
}

// True for an asynchronous upload that runs on a stream of its own but overlaps
// with nothing: its stream waits for the previous step, and kernels wait for
// the copy.
bool IsApart(const AnalysisContext& m, const HostCopy& upload) {
  return upload.wait == SIZE_MAX && !upload.on_compute_stream &&
         WaitsAndIsAwaited(m, upload.copy);
}
bool IsExposed(const AnalysisContext& m, const HostCopy& upload) {
  return (upload.wait == SIZE_MAX && upload.on_compute_stream) ||
         IsApart(m, upload);
}

struct ExposedUploads {
  HostCopySums sums, sums_apart;
  double hideable_ns = 0;
  bool fires = false;
  bool mostly_apart() const {
    return 2 * sums_apart.exposed_ns > sums.exposed_ns;
  }
};

double KernelNsPerStep(const AnalysisContext& m) {
  const std::vector<Span>& kernels = m.ledger->kernels;
  double ns = 0;
  for (size_t i : m.steps.steady) {
    ns += static_cast<double>(LengthIn(kernels, m.steps.windows[i].tiled));
  }
  return ns / static_cast<double>(m.steps.steady.size());
}

Verdict CheckBlocking(const AnalysisContext& m) {
  const std::vector<HostCopy> uploads = FindHostCopies(m, Direction::kToDevice);
  QueueWaits queue_waits;
  queue_waits.sums = SumWaits(m.waits, m.steps, queue_waits.filter);
  queue_waits.fires =
      queue_waits.sums.queued_ns * 1e-6 >= MinReportableGainMs(m) &&
      Recurs(queue_waits.sums.once_queued_frac, m.steps);
  ExposedUploads exposed;
  exposed.sums = SumHostCopies(
      m, uploads, [&](const HostCopy& one) { return IsExposed(m, one); });
  exposed.sums_apart = SumHostCopies(
      m, uploads, [&](const HostCopy& one) { return IsApart(m, one); });
  // A copy can only hide behind kernels, so count no more than kernels take.
  exposed.hideable_ns = std::min(exposed.sums.exposed_ns, KernelNsPerStep(m));
  exposed.fires = exposed.hideable_ns * 1e-6 >= MinReportableGainMs(m);
  if (!queue_waits.fires && !exposed.fires) return Clean();

  Finding finding;
  finding.confidence = Confidence::kProven;
  Edit edit;
  if (queue_waits.fires) {
    edit = WithoutWaits(m.waits, queue_waits.filter);
    finding.evidence = Uploads(queue_waits.sums.count) + " per step " +
                       VerbFor(queue_waits.sums.count, "blocks", "block") +
                       " the host for " +
                       Milliseconds(queue_waits.sums.queued_ns * 1e-6) +
                       " of the " + Milliseconds(m.stats.mean_ms) +
                       " step, waiting for work that was launched before.";
    const double data = m.MeanNs(Cause::kData);
    if (data >= kLoaderShare * m.step_ns()) {
      finding.evidence +=
          " Without this wait, the host could load the next "
          "batch (" +
          Milliseconds(data * 1e-6) + " per step) in that time.";
    }
    finding.fix_cpp =
        "pin the source and pass /*non_blocking=*/true; create constants on "
        "the device";
    finding.fix_python =
        "set pin_memory=True and call .to(device, non_blocking=True); create "
        "constants with device=\"cuda\"";
  }
  if (exposed.fires) {
    std::vector<const HostCopy*> copied;
    for (const HostCopy& upload : uploads) {
      if (!IsExposed(m, upload)) continue;
      edit.side_stream.push_back({ActivityTable::kCopy, upload.copy});
      if (upload.steady) copied.push_back(&upload);
    }
    finding.evidence +=
        (finding.evidence.empty() ? "" : " ") + Uploads(exposed.sums.count) +
        " per step (" + Milliseconds(exposed.sums.exposed_ns * 1e-6) + ") " +
        VerbFor(exposed.sums.count, "runs", "run") +
        (exposed.mostly_apart()
             ? " on another stream, but no kernel runs meanwhile: the copies "
               "wait for the previous step, and the next step waits for the "
               "copies."
             : " on the compute stream, which keeps the kernels waiting.");
    const char* cpp =
        exposed.mostly_apart()
            ? "start the copy of the next batch before this step is launched, "
              "and let its stream wait for nothing; recordStream() keeps the "
              "previous batch's memory alive"
            : "copy the next batch on a separate stream "
              "(c10::cuda::CUDAStreamGuard), let the compute stream wait for "
              "an event, and call recordStream() on the tensor's storage";
    const char* python =
        exposed.mostly_apart()
            ? "start the copy of the next batch before this step is launched, "
              "without side.wait_stream(compute) in front of it; "
              "record_stream() keeps the previous batch's memory alive"
            : "copy the next batch under torch.cuda.stream(side), then call "
              "wait_stream(side) and record_stream()";
    finding.fix_cpp += (finding.fix_cpp.empty() ? "" : "; ") + std::string(cpp);
    finding.fix_python +=
        (finding.fix_python.empty() ? "" : "; ") + std::string(python);
    if (!queue_waits.fires) AddCopyExamples(m, copied, finding);
  }
  finding.assumption =
      "the pinned buffer is not overwritten before its copy has finished";
  finding.wrong_if =
      "the data exists only after the last kernel of the step has ended";
  std::vector<Example> examples = finding.examples;
  Found found{.finding = std::move(finding),
              .alternatives = {{std::move(edit)}},
              .bound_ns = (queue_waits.fires ? queue_waits.sums.bound_ns : 0) +
                          (exposed.fires ? exposed.hideable_ns : 0)};
  if (!queue_waits.fires && !exposed.mostly_apart() &&
      exposed.hideable_ns < kWorthAStream * m.step_ns()) {
    found.at_most = FindingSeverity::kLow;
  }
  DescribeWaits(m, queue_waits.filter, found);
  if (!queue_waits.fires) {
    // DescribeWaits() named places where the host waits, but this finding is
    // about the copies themselves.
    found.finding.examples = std::move(examples);
    found.finding.where.clear();
  }
  ExplainSmallGain(m, queue_waits.sums, found);
  return Fire(std::move(found));
}

constexpr Rule kRules[] = {
    {.id = "slow-bus",
     .question = "Do copies from pinned memory reach the rate of the device's "
                 "bus?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kCopy},
     .causes = {Cause::kCopy, Cause::kBlockingCopy},
     .check = &CheckSlowBus,
     .reference = "CUDA C++ Best Practices Guide, 10.1: pinned memory attains "
                  "the highest bandwidth between host and device",
     .detect = "copies of at least 1 MiB between pinned memory and the device "
               "run at less than half of the usual rate of the device's bus, "
               "and with that rate at least 1 % of the step would be saved",
     .avoid = "kernels run beside the copies, or the device is unknown",
     .fix_cpp = "free the lanes, the socket or the switch that limits it; copy "
                "less",
     .fix_python = "free the lanes, the socket or the switch that limits it; "
                   "copy less"},
    {.id = "h2d-blocking",
     .question = "Do uploads make the host or the kernels wait?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kCopy, Kind::kRuntimeCall},
     .causes = {Cause::kBlockingCopy, Cause::kCopy, Cause::kSync},
     .check = &CheckBlocking,
     .reference = "17 tips, number 7; the ResNet-18 case study, step 2: "
                  "https://towardsdatascience.com/"
                  "pytorch-model-performance-analysis-and-optimization-"
                  "10c3c5822869",
     .detect = "blocking uploads of any size wait for queued work, or "
               "asynchronous uploads run on the compute stream, or on a stream "
               "of their own while no kernel runs, and their removal "
               "saves at least 1 % of the step",
     .avoid = "nothing is queued before the uploads, or they overlap with "
              "kernels. Asynchronous uploads on the compute stream that take "
              "less than a tenth of the step are low at most",
     .fix_cpp = "pin the source and pass non_blocking; copy the next batch on "
                "a separate stream with an event and recordStream()",
     .fix_python = "pin the source and pass non_blocking=True; copy the next "
                   "batch under torch.cuda.stream() with record_stream()",
     .change = "uploads overlapped with computing"}};

}  // namespace
}  // namespace copies_rules

extern const std::span<const Rule> kCopies = copies_rules::kRules;

}  // namespace stepscope
