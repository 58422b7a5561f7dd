// Does memory management cost time, or is memory about to run out?
// Sources: PyTorch Performance Tuning Guide: pre-allocate for variable lengths,
// checkpoint activations; 90 % is torch-tb-profiler's bound.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "device/allocator_calls.h"
#include "edit/edit.h"
#include "evidence/device_memory_use.h"
#include "ops/by_name.h"
#include "ops/contains.h"
#include "words/quantities.h"

namespace stepscope {
namespace memory_rules {
namespace {

// Releasing memory waits for all work of the device, so even rare releases
// count, however long they take. Allocations count only by their time.
constexpr double kFreesPerStep = 0.1;
constexpr double kStuckShare = 0.20;     // of the device's memory
constexpr double kFullShare = 0.80;      // share that is reserved
constexpr double kNearlyFull = 0.90;     // share that is reserved
constexpr double kNearlyAllUsed = 0.85;  // share that tensors use
constexpr double kHeadroom = 2;
constexpr size_t kCallsShown = 3;  // in the evidence

// Calls that manage memory in the steady steps.
struct Churn {
  struct Calls {
    double count = 0, ns = 0;  // per step
  };
  std::vector<RowId> calls;                 // runtime calls
  std::map<std::string_view, Calls> named;  // by the name of the call
  // Per step.
  double device_ns = 0, stream_order_ns = 0;
  double frees = 0, frees_between_ops = 0;
};

bool BeginsCapture(std::string_view call) {
  return Contains(call, "StreamBeginCapture");
}

// True if the step captures a CUDA graph. It then allocates the graph's private
// pool, which happens once.
bool Captures(const Trace& trace, const Span& host,
              ByName<bool>& begins_capture) {
  auto it = std::ranges::lower_bound(trace.runtime_calls(), host.begin_ns, {},
                                     &RuntimeCall::begin_ns);
  for (; it != trace.runtime_calls().end() && it->begin_ns < host.end_ns;
       ++it) {
    if (begins_capture(it->name)) return true;
  }
  return false;
}

Churn FindChurn(const AnalysisContext& m) {
  Churn churn;
  const double steps = static_cast<double>(m.steps.steady.size());
  ByName kind_of(m.trace, &AllocatorCallOf);
  ByName begins_capture(m.trace, &BeginsCapture);
  for (size_t i : m.steps.steady) {
    const Span& host = m.steps.windows[i].host;
    if (Captures(m.trace, host, begins_capture)) continue;
    const auto calls = m.trace.runtime_calls();
    auto it = std::ranges::lower_bound(calls, host.begin_ns, {},
                                       &RuntimeCall::begin_ns);
    for (; it != calls.end() && it->begin_ns < host.end_ns; ++it) {
      const std::optional<AllocatorCall> kind = kind_of(it->name);
      // pin-on-main-thread is about pinned memory.
      if (!kind || *kind == AllocatorCall::kPinned) continue;
      const double ns = static_cast<double>(it->end_ns - it->begin_ns) / steps;
      churn.calls.push_back(static_cast<RowId>(it - calls.begin()));
      Churn::Calls& alike = churn.named[m.trace.name(it->name)];
      alike.count += 1 / steps;
      alike.ns += ns;
      (*kind == AllocatorCall::kStreamOrder ? churn.stream_order_ns
                                            : churn.device_ns) += ns;
      if (*kind != AllocatorCall::kDeviceFree) continue;
      churn.frees += 1 / steps;
      if (it->op == kNone) churn.frees_between_ops += 1 / steps;
    }
  }
  return churn;
}

// Returns the calls that take longest, such as "1.00 cudaFree (0.12 ms) and 40
// cudaMallocAsync (5.82 ms)".
std::string CallsInWords(const Churn& churn) {
  std::vector<std::pair<std::string_view, Churn::Calls>> sorted(
      churn.named.begin(), churn.named.end());
  std::ranges::stable_sort(sorted, std::greater(),
                           [](const auto& one) { return one.second.ns; });
  if (sorted.size() > kCallsShown) sorted.resize(kCallsShown);
  std::vector<std::string> texts;
  texts.reserve(sorted.size());
  for (const auto& [name, calls] : sorted) {
    texts.push_back(Number(calls.count) + " " + std::string(name) + " (" +
                    Milliseconds(calls.ns * 1e-6) + ")");
  }
  return ListedWithAnd(texts);
}

struct Fix {
  std::string cpp, python;
};

// Returns how to avoid the calls that take most of the time.
Fix FixOf(const Churn& churn, bool by_user) {
  if (churn.stream_order_ns > churn.device_ns) {
    return {
        "use PyTorch's caching allocator (remove backend:cudaMallocAsync "
        "from PYTORCH_CUDA_ALLOC_CONF), or allocate before the loop",
        "use PyTorch's caching allocator (remove backend:cudaMallocAsync "
        "from PYTORCH_CUDA_ALLOC_CONF), or allocate before the loop"};
  }
  if (by_user) {
    return {
        "do not call c10::cuda::CUDACachingAllocator::emptyCache() in the loop",
        "do not call torch.cuda.empty_cache() in the loop"};
  }
  return {
      "run one forward and backward pass of the largest batch before "
      "training; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
      "run one forward and backward pass of the longest batch before "
      "training; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; bucket "
      "samples by similar length"};
}

Verdict CheckChurn(const AnalysisContext& m) {
  const Churn churn = FindChurn(m);
  // The cause also includes pinning.
  const double bucket = std::min(m.MeanNs(Cause::kAllocator),
                                 churn.device_ns + churn.stream_order_ns);
  const bool costs = bucket * 1e-6 >= MinReportableGainMs(m);
  if (churn.calls.empty() || (!costs && churn.frees < kFreesPerStep)) {
    return Clean();
  }
  const bool by_user =
      churn.frees > 0 && churn.frees_between_ops > churn.frees / 2;
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence =
      "Memory is allocated or released by the driver while steps run: " +
      CallsInWords(churn) + " per step. The GPU is idle for " +
      Milliseconds(bucket * 1e-6) + " meanwhile.";
  if (churn.frees > 0) {
    finding.evidence +=
        " Each release of device memory waits until the device has finished "
        "all its work.";
  }
  if (by_user) {
    finding.evidence +=
        " The releases happen outside operators: the program calls "
        "empty_cache().";
  }
  Edit edit;
  for (RowId row : churn.calls) {
    const RuntimeCall& call = m.trace.runtime_calls()[row];
    if (call.thread != kNone) {
      edit.cuts.push_back({call.thread, {call.begin_ns, call.end_ns}, 0});
    }
    if (AllocatorCallOf(m.trace.name(call.name)) ==
        AllocatorCall::kDeviceFree) {
      edit.no_wait.push_back(row);
    }
    if (finding.examples.size() < 3) {
      finding.examples.push_back(
          {-1, call.begin_ns, call.end_ns,
           std::string(m.trace.name(call.name)) +
               (call.op == kNone
                    ? ""
                    : " in " + std::string(m.trace.name(
                                   m.trace.ops()[call.op].name)))});
    }
  }
  finding.assumption = "all memory stays in the allocator's cache";
  const Fix fix = FixOf(churn, by_user);
  finding.fix_cpp = fix.cpp;
  finding.fix_python = fix.python;
  finding.wrong_if = "another program needs the memory that is released";
  // Calls that run while the device is busy cost nothing, so the bound is the
  // idle time, not the length of the calls.
  return Fire(std::move(finding), std::move(edit), std::max(bucket, 0.0));
}

constexpr const char* kNoMemory =
    "the allocator's totals, or the size of the device's memory, were not "
    "recorded (profile_memory in torch.profiler, record_memory in stepscope)";

Verdict CheckFragmentation(const AnalysisContext& m) {
  const DeviceMemoryUse use = MeasureDeviceMemory(m);
  const bool retries = use.retries > 0 || use.out_of_memory > 0;
  if (!retries && (use.reserved < 0 || use.total <= 0)) {
    return Skip(kNoMemory);
  }
  const double stuck =
      // If the allocator did not report it, take what is reserved beyond the
      // peak of the tensors.
      use.stuck >= 0 ? use.stuck : use.reserved - use.allocated;
  // A cache that is large but not fragmented stops growing.
  const bool fragmented = use.total > 0 && use.allocated >= 0 &&
                          use.reserved > kFullShare * use.total &&
                          stuck > kStuckShare * use.total && use.grew;
  if (!retries && !fragmented) return Clean();
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.status =
      use.out_of_memory > 0 ? FindingStatus::kError : FindingStatus::kWarning;
  if (retries) {
    finding.evidence = "The allocator ran out of memory " +
                       Count(use.retries + use.out_of_memory, "time") +
                       " and had to return its whole cache to the driver while "
                       "the device waited";
    finding.evidence +=
        use.out_of_memory > 0
            ? "; " + Count(use.out_of_memory, "request") + " failed. "
            : ". ";
  }
  if (use.reserved >= 0 && use.allocated >= 0) {
    finding.evidence += "Tensors use at most " + Bytes(use.allocated) + " of " +
                        Bytes(use.reserved) + " reserved";
    finding.evidence +=
        use.total > 0 ? ", on a device of " + Bytes(use.total) + "." : ".";
  }
  finding.fix_cpp = finding.fix_python =
      "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; otherwise "
      "max_split_size_mb, or run the largest batch first";
  finding.wrong_if = "the reserved memory was needed before the recording";
  Verdict verdict = Fire(std::move(finding));
  verdict.found[0].regardless = true;
  return verdict;
}

Verdict CheckHeadroom(const AnalysisContext& m) {
  const DeviceMemoryUse use = MeasureDeviceMemory(m);
  if (use.total <= 0 || use.held < 0 || use.allocated <= use.held) {
    return Skip(kNoMemory);
  }
  const double headroom = use.headroom();
  if (headroom < kHeadroom) return Clean();
  Finding finding;
  // Free memory alone makes nothing faster, so this is a note without a gain.
  finding.status = FindingStatus::kOk;
  finding.confidence = Confidence::kStrong;
  // Round down to a power of two, as most batch sizes are.
  const int64_t factor =
      int64_t{1} << std::clamp(static_cast<int>(std::log2(headroom)), 1, 20);
  finding.evidence = "Tensors use at most " + Bytes(use.allocated) + " of " +
                     Bytes(use.total) + ", and " + Bytes(use.held) +
                     " stay allocated between steps: a batch " +
                     std::to_string(factor) + " times as large would fit.";
  finding.fix_cpp = finding.fix_python =
      "see small-batch, which predicts whether a larger batch is faster; free "
      "memory alone is no reason";
  finding.wrong_if = "other processes need the memory";
  return Fire(std::move(finding));
}

Verdict CheckNearOom(const AnalysisContext& m) {
  const DeviceMemoryUse use = MeasureDeviceMemory(m);
  if (use.reserved < 0 || use.total <= 0) return Skip(kNoMemory);
  // A full cache alone is harmless: if a request fails, the allocator returns
  // what it can to the driver and tries again.
  const bool used =
      use.allocated > kNearlyAllUsed * use.total || use.retries > 0;
  if (use.reserved <= kNearlyFull * use.total || !used) return Clean();
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.status = FindingStatus::kWarning;
  finding.evidence =
      Bytes(use.reserved) + " of the device's " + Bytes(use.total) + " (" +
      Percent(use.reserved / use.total) + ") are reserved" +
      (use.allocated >= 0 ? ", tensors use " + Bytes(use.allocated)
                          : std::string()) +
      (use.retries > 0 ? ", and " + Count(use.retries, "request") +
                             " had to wait until memory was released"
                       : std::string()) +
      ": a slightly larger batch would fail.";
  if (use.peak_op != kNone) {
    finding.where = "the peak is reached in " +
                    std::string(m.trace.name(m.trace.ops()[use.peak_op].name));
  }
  finding.fix_cpp =
      "autocast to 16 bits, smaller batches with gradient accumulation, or "
      "recomputation of large activations in backward";
  finding.fix_python =
      "torch.utils.checkpoint on blocks whose activations are large and cheap "
      "to recompute, autocast, or gradient accumulation";
  finding.wrong_if = "the run has already processed its largest batch";
  Verdict verdict = Fire(std::move(finding));
  verdict.found[0].regardless = true;
  return verdict;
}

constexpr Rule kRules[] = {
    {.id = "allocator-churn",
     .question =
         "Does the allocator call the driver for memory during training?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kRuntimeCall},
     .causes = {Cause::kAllocator},
     .check = &CheckChurn,
     .reference = "PyTorch Performance Tuning Guide: Pre-allocate memory in "
                  "case of variable input length",
     .detect =
         "calls that allocate or release device memory leave the GPU idle "
         "for 1 % of the step, or there is one cudaFree in ten steady "
         "steps",
     .avoid = "the calls are in warm-up steps, or in steps that capture a CUDA "
              "graph, or pin memory (pin-on-main-thread)",
     .fix_cpp = "run the largest batch first; expandable_segments:True",
     .fix_python = "run the longest batch first; expandable_segments:True; no "
                   "empty_cache() in the loop",
     .change = "memory kept between steps"},
    {.id = "fragmentation",
     .question = "Is device memory reserved that no tensor can use?",
     .runs = Runs::kGpuOnly,
     .needs = {},
     .causes = {},
     .check = &CheckFragmentation,
     .reference = "PyTorch Performance Tuning Guide: Pre-allocate memory in "
                  "case of variable input length",
     .detect = "the allocator had to empty its cache to serve a request; or "
               "more than 80 % of the memory is reserved, 20 % of the memory "
               "is reserved but unused, and the reserved memory still grows",
     .avoid =
         "the cache is large but does not grow, for example after validation",
     .fix_cpp = "expandable_segments:True, max_split_size_mb",
     .fix_python = "expandable_segments:True, max_split_size_mb"},
    {.id = "memory-headroom",
     .question = "Would a larger batch fit?",
     .runs = Runs::kGpuOnly,
     .needs = {},
     .causes = {},
     .check = &CheckHeadroom,
     .reference =
         "The ResNet-18 case study, step 3: "
         "https://towardsdatascience.com/"
         "pytorch-model-performance-analysis-and-optimization-10c3c5822869",
     .detect = "90 % of the memory, minus what stays allocated between steps, "
               "is at least twice what a batch takes. This is a note that goes "
               "with small-batch, and never advice by itself",
     .avoid = "less memory is free; free memory alone makes nothing faster",
     .fix_cpp = "see small-batch",
     .fix_python = "see small-batch"},
    {.id = "near-oom",
     .question = "Is device memory about to run out?",
     .runs = Runs::kGpuOnly,
     .needs = {},
     .causes = {},
     .check = &CheckNearOom,
     .reference =
         "PyTorch Performance Tuning Guide: Checkpoint intermediate buffers",
     .detect = "more than 90 % of the memory is reserved (torch-tb-profiler's "
               "bound), and tensors use more than 85 % of it or requests had "
               "to be retried",
     .avoid = "the memory is only cached",
     .fix_cpp = "autocast, smaller batches with gradient accumulation",
     .fix_python = "torch.utils.checkpoint, autocast, gradient accumulation"}};

}  // namespace
}  // namespace memory_rules

extern const std::span<const Rule> kMemory = memory_rules::kRules;

}  // namespace stepscope
