// Do copies between the host and the device hold up the step?
// Sources: PyTorch Performance Tuning Guide, "Enable asynchronous data loading
// and augmentation" (pin_memory); the ResNet-18 case study, steps 2 and 4; "17
// tips", number 7. The driver stages pageable copies below 64 KiB without
// waiting. 1 MiB takes 0.2 ms at 4.4 GB/s, the rate measured for pageable
// memory.
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
#include "ops/backward_nodes.h"
#include "ops/intervals.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"
#include "words/quantities.h"

namespace stepscope {
namespace copies_rules {
namespace {

constexpr int64_t kStagedBytes = 64 << 10;
constexpr int64_t kPageableBytes = 1 << 20;
constexpr int64_t kDrainNs = 10'000;
constexpr int64_t kSoonNs = 50'000;  // work that awaits an event starts sooner
constexpr double kLoaderShare = 0.05;
// With so many uploads per step that alternate with kernels, weights are kept
// on the host. Our own choice; a batch has a few tensors.
constexpr double kWeightsPerStep = 16;
constexpr size_t kWeightSizes = 4;
// Share of the usual rate of the device's bus. Half of the rate is what a slot
// with half the lanes, or of the previous PCIe generation, reaches.
constexpr double kSlowBus = 0.5;

std::string Rate(double gb_per_s) { return Number(gb_per_s) + " GB/s"; }

std::string Uploads(double per_step) { return MeanCount(per_step, "upload"); }

// Returns `one` for a single upload per step, otherwise `many`.
const char* VerbFor(double per_step, const char* one, const char* many) {
  return Uploads(per_step) == "1 upload" ? one : many;
}

// Adds at most 3 examples, the longest copies.
void AddExamples(const AnalysisContext& m, std::vector<const HostCopy*> copies,
                 Finding& finding) {
  const auto length = [&](const HostCopy* one) {
    const Copy& copy = m.trace.copies()[one->copy];
    return copy.end_ns - copy.begin_ns;
  };
  std::ranges::stable_sort(copies, std::greater(), length);
  for (size_t i = 0; i < std::min<size_t>(3, copies.size()); ++i) {
    const Copy& copy = m.trace.copies()[copies[i]->copy];
    finding.examples.push_back(
        {m.steps.windows[copies[i]->step].number, copy.begin_ns, copy.end_ns,
         (copy.bytes > 0 ? Bytes(static_cast<double>(copy.bytes)) + " by "
                         : std::string()) +
             (copy.op == kNone
                  ? std::string("a copy")
                  : std::string(m.trace.name(m.trace.ops()[copy.op].name)))});
  }
}

// True if the uploads of a step have many sizes and alternate with kernels, as
// those of weights do that are kept on the host and uploaded layer by layer. A
// batch is uploaded before its kernels are launched, and the batches of several
// passes in a step have the same sizes.
bool AreWeights(const AnalysisContext& m,
                const std::vector<const HostCopy*>& uploads) {
  std::set<int64_t> sizes;
  for (const HostCopy* one : uploads) {
    sizes.insert(m.trace.copies()[one->copy].bytes);
  }
  if (sizes.size() < kWeightSizes) return false;
  std::vector<int64_t> launches;
  for (const Kernel& kernel : m.trace.kernels()) {
    if (kernel.call == kNone) continue;
    launches.push_back(m.trace.runtime_calls()[kernel.call].begin_ns);
  }
  std::ranges::sort(launches);
  double alternate = 0;
  for (size_t i = 1; i < uploads.size(); ++i) {
    const RowId before = m.trace.copies()[uploads[i - 1]->copy].call;
    const RowId call = m.trace.copies()[uploads[i]->copy].call;
    if (before == kNone || call == kNone) continue;
    const auto launch = std::ranges::lower_bound(
        launches, m.trace.runtime_calls()[before].begin_ns);
    alternate += launch != launches.end() &&
                 *launch < m.trace.runtime_calls()[call].begin_ns;
  }
  return alternate >=
         kWeightsPerStep * static_cast<double>(m.steps.steady.size());
}

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

// Returns for how long per step the GPU is idle while the program's own code
// runs right after one of `downloads`, before the next op. Such code most
// likely computes with what was downloaded, as NumPy would.
double IdleAfterNs(const AnalysisContext& m,
                   const std::vector<const HostCopy*>& downloads) {
  std::vector<Span> pauses;
  for (const HostCopy* one : downloads) {
    const RowId call = m.trace.copies()[one->copy].call;
    if (call == kNone) continue;
    const RowId inner = m.trace.runtime_calls()[call].op;
    if (inner == kNone) continue;
    const Op& op = m.trace.ops()[OutermostOf(m.trace, inner)];
    if (op.thread != m.steps.thread) continue;
    const auto later = m.tree.of_thread(op.thread, {op.end_ns, INT64_MAX});
    if (later.empty()) continue;
    const int64_t next = m.trace.ops()[later.front()].begin_ns;
    if (next - op.end_ns > kFrameworkGapNs) pauses.push_back({op.end_ns, next});
  }
  const std::vector<Span> idle = Merge(IdleSpans(m.waits.idle));
  return static_cast<double>(Length(Intersect(Merge(pauses), idle))) /
         static_cast<double>(m.steps.steady.size());
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
  const HostCopyFilter filter = [&](const HostCopy& one) {
    return pageable(one) && m.trace.copies()[one.copy].bytes >= kStagedBytes;
  };
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
  std::vector<const HostCopy*> copied;
  for (const HostCopy& one : copies) {
    if (one.steady && filter(one)) copied.push_back(&one);
  }
  const double after =
      texts.direction == Direction::kToHost ? IdleAfterNs(m, copied) : 0;
  const bool computes = after * 1e-6 >= MinReportableGainMs(m);
  if (computes) bound += after;
  const bool offloads =
      texts.direction == Direction::kToDevice && AreWeights(m, copied);
  if (offloads) {
    const HostCopySums all = SumHostCopies(m, copies, pageable);
    bound = std::min(all.held_ns + all.queued_ns + all.exposed_ns,
                     m.step_ns() - m.MeanNs(Cause::kCompute));
  }
  if (bound * 1e-6 < MinReportableGainMs(m)) return Clean();

  Finding finding;
  finding.confidence = texts.confidence;
  finding.evidence = MeanCount(sums.count, texts.noun) + " per step " +
                     texts.place + ": " + Bytes(sums.bytes) + " in " +
                     Milliseconds(sums.copy_ns * 1e-6) + " at " + Rate(rate) +
                     ". This blocks the host for " +
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
           ? Rate(pinned.gb_per_s) + ", as measured in this run"
           : Rate(pinned.gb_per_s) + ", the usual rate of this device's bus");
  finding.fix_cpp = texts.fix_cpp;
  finding.fix_python = texts.fix_python;
  finding.wrong_if = texts.wrong_if;
  if (computes) {
    finding.confidence = Confidence::kStrong;
    finding.evidence += " Right after it, the GPU is idle for another " +
                        Milliseconds(after * 1e-6) +
                        " while the program's own code runs, probably on what "
                        "was downloaded.";
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
        " They alternate with kernels, as uploads of weights do that are kept "
        "on the host (CPU offload).";
    finding.assumption = "the weights stay on the device";
    finding.fix_cpp =
        "keep the weights on the device; if they do not fit, keep them in 8 or "
        "4 bits, or upload the next layer from pinned memory on a second "
        "stream while this one computes";
    finding.fix_python =
        "keep the weights on the GPU: model.to(\"cuda\") without "
        "enable_sequential_cpu_offload() or offload in the device map; if they "
        "do not fit, enable_model_cpu_offload() or group offloading with a "
        "stream (diffusers), or weights in 8 or 4 bits";
    finding.wrong_if = "the weights do not fit on the device";
  }
  const WaitFilter waits = [&](const HostWait& wait) {
    return wait.kind == texts.wait && wait.copy != kNone &&
           filter({.copy = wait.copy});
  };
  Found found{.finding = std::move(finding), .bound_ns = bound};
  // The replay cannot tell whether the host can do without a result for a
  // while.
  if (texts.direction == Direction::kToDevice) {
    found.alternatives = {
        {offloads ? FromPinned(m, copies, pageable, 0, /*assumed=*/false)
                  : FromPinned(m, copies, filter, factor,
                               /*assumed=*/!pinned.measured)}};
  }
  DescribeWaits(m, waits, found);
  if (found.finding.examples.empty()) AddExamples(m, copied, found.finding);
  return Fire(std::move(found));
}

Verdict CheckUploads(const AnalysisContext& m) {
  return CheckPageable(m, kUploadTexts);
}

Verdict CheckDownloads(const AnalysisContext& m) {
  return CheckPageable(m, kDownloadTexts);
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
    if (!one.steady || copy.bytes < kPageableBytes ||
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
  const int64_t hidden =
      Length(Intersect(spans, KernelSpans(m.trace, m.ledger->device, false)));
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
      " in " + Milliseconds(pinned.ns * 1e-6) + ", run at " + Rate(rate) +
      "; the bus of this device usually carries about " + Rate(usual) +
      ". For " + Milliseconds(pinned.exposed_ns * 1e-6) + " of the " +
      Milliseconds(m.stats.mean_ms) + " step, no kernel runs at the same time.";
  AddExamples(m, pinned.copies, finding);
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
  const std::vector<Span> kernels =
      KernelSpans(m.trace, m.ledger->device, false);
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
                       Milliseconds(queue_waits.sums.blocked_ns * 1e-6) +
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
    if (!queue_waits.fires) AddExamples(m, copied, finding);
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
               "sizes or more alternate with kernels, they are weights that "
               "are kept on the host, and the change is to keep them on the "
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
     .change = "downloads into pinned memory"},
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
              "kernels",
     .fix_cpp = "pin the source and pass non_blocking; copy the next batch on "
                "a separate stream with an event and recordStream()",
     .fix_python = "pin the source and pass non_blocking=True; copy the next "
                   "batch under torch.cuda.stream() with record_stream()",
     .change = "uploads overlapped with computing"}};

}  // namespace
}  // namespace copies_rules

extern const std::span<const Rule> kCopies = copies_rules::kRules;

}  // namespace stepscope
