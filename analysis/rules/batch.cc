// Is the batch too small for the device, and does a larger one fit?
// Sources: the ResNet-18 case study, step 3 (batch 32 to 512: 1200 to 1584
// images/s at the same utilisation); "17 tips", number 3. A busy GPU is no
// criterion: kernels that fill half of it keep it busy, too.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string>

#include "context/rule.h"
#include "device/device_numbers.h"
#include "evidence/kernel_evidence.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr double kWaitsForRanks = 0.03;  // of the step

constexpr double kUnderfilled = 0.30;  // of the compute time
constexpr double kLaunching = 0.10;    // of the step
constexpr double kHeadroom = 2;
constexpr double kUsable = 0.9;  // of the device's memory
constexpr double kMostBatch = 16;
// On a CPU a doubling must win this share of a sample's time, and is not tried
// more often than twice. Promises were about half of what it brought.
constexpr double kWorthDoubling = 0.04;
constexpr double kMostBatchOnCpu = 4;

// Blocks per multiprocessor; -1 if unknown.
double BlocksPerSm(const AnalysisContext& m, const KernelUse& use) {
  const Kernel& kernel = m.trace.kernels()[use.kernel];
  if (kernel.blocks_per_sm >= 0) return kernel.blocks_per_sm;
  const double blocks = BlocksOf(m.trace, kernel);
  const int sms = m.kernels.device.sm_count;
  return blocks > 0 && sms > 0 ? blocks / sms : -1;
}

// Work that grows with the batch.
bool GrowsWithBatch(const KernelUse& use) {
  return use.kind != KernelClass::kCommunication &&
         use.kind != KernelClass::kOptimizer && !use.in_optimizer;
}

// Device memory over the steady steps. -1 where it is not known.
struct Memory {
  double held = -1;  // at the beginning of steps: weights, optimizer state
  double peak = -1;
  double total = -1;
  // How many times what a batch takes would fit.
  double headroom() const {
    return peak > held ? (kUsable * total - held) / (peak - held) : -1;
  }
};

Memory MeasureMemory(const AnalysisContext& m) {
  Memory memory;
  const int32_t device = MemoryDevice(m.trace, m.kernels.device.ordinal);
  memory.total = static_cast<double>(m.kernels.device.memory_bytes);
  for (const DeviceSample& sample : m.trace.device_samples()) {
    if (sample.device == device && sample.total_bytes > 0) {
      memory.total = static_cast<double>(sample.total_bytes);
    }
  }
  int64_t now = -1;
  size_t next = 0;
  for (const Allocation& row : m.trace.allocations()) {
    if (row.device_type == 0 || row.total_allocated_bytes < 0 ||
        (row.device >= 0 && row.device != device)) {
      continue;
    }
    while (next < m.steps.steady.size() &&
           m.steps.windows[m.steps.steady[next]].host.begin_ns < row.time_ns) {
      const int64_t before =
          now >= 0 ? now : row.total_allocated_bytes - row.bytes;
      memory.held = std::max(memory.held, static_cast<double>(before));
      ++next;
    }
    now = row.total_allocated_bytes;
    if (next > 0 &&
        row.time_ns < m.steps.windows[m.steps.steady[next - 1]].host.end_ns) {
      memory.peak = std::max(memory.peak, static_cast<double>(now));
    }
  }
  return memory;
}

Alternative LargerOnCpu(double times) {
  const std::string by = Times(times);
  Alternative larger{.edit = {.batch = times}};
  larger.wording.assumption =
      "there is memory for a batch " + by +
      " times as large; ops whose time is arithmetic take " + by +
      " times as long";
  larger.wording.fix_cpp =
      "batch size times " + by + ", with the learning rate tuned again";
  larger.wording.fix_python = larger.wording.fix_cpp;
  return larger;
}

// On a CPU: what a step costs whatever the batch, spread over more samples.
Verdict CheckSmallBatchOnCpu(const AnalysisContext& m) {
  if (!m.replay.check().valid) {
    return Skip(
        "replay does not speak, so nobody can tell what a larger batch brings");
  }
  if (m.MeanNs(Cause::kCommunication) >= kWaitsForRanks * m.step_ns()) {
    return Skip(
        "the step waits for other ranks, and how long these take for a larger "
        "batch was not recorded");
  }
  const CpuProgram& program = m.replay.program();
  double grows = 0, whole = 0;
  for (const auto& step : program.steps) {
    for (const Work& work : step) {
      whole += work.ns;
      grows += work.kind == WorkKind::kLoader ? work.ns : work.grows_ns;
    }
  }
  if (grows <= 0) return Clean();
  const double steps = static_cast<double>(program.steps.size());
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      Milliseconds((whole - grows) / steps * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) + " step (" +
      Percent((whole - grows) / std::max(whole, 1.0)) +
      ") take as long for any batch: the optimizer, weights on their way to "
      "the cores, and code between ops. Gains are per sample.";
  finding.wrong_if =
      "the larger batch converges so much slower that time to accuracy grows";
  Found found{.finding = std::move(finding),
              .choice = Choice::kLadder,
              .worth = kWorthDoubling};
  for (double times = 2; times <= kMostBatchOnCpu; times *= 2) {
    found.alternatives.push_back(LargerOnCpu(times));
  }
  return Fire(std::move(found));
}

Verdict CheckSmallBatch(const AnalysisContext& m) {
  if (!m.has_gpu) return CheckSmallBatchOnCpu(m);
  if (!m.trace.watched(Kind::kKernel)) {
    return Skip("no kernel events were recorded");
  }
  const KernelUses& kernels = m.kernels;
  const double grows = kernels.NsPerStep(GrowsWithBatch);
  if (grows <= 0) return Clean();
  const KernelFilter underfilled = [&](const KernelUse& use) {
    const double blocks = BlocksPerSm(m, use);
    return GrowsWithBatch(use) && blocks >= 0 && blocks < 1;
  };
  const double under = kernels.NsPerStep(underfilled);
  const double launching =
      m.MeanNs(Cause::kDispatch) + m.MeanNs(Cause::kHostCode);
  const bool fills = under < kUnderfilled * grows;
  if (fills && launching < kLaunching * m.step_ns()) return Clean();

  const Memory memory = MeasureMemory(m);
  if (memory.held < 0 || memory.peak <= memory.held || memory.total <= 0) {
    return Skip(
        "how much of the device's memory a batch takes was not recorded "
        "(profile_memory), so nobody can tell whether a larger one fits");
  }
  const double headroom = memory.headroom();
  if (headroom < kHeadroom) return Clean();
  const double times = static_cast<double>(
      std::bit_floor(static_cast<uint64_t>(std::min(headroom, kMostBatch))));

  Edit edit{.batch = times};
  double larger = 0, saved = launching * (1 - 1 / times);
  for (const KernelUse& use : kernels.uses) {
    if (!GrowsWithBatch(use)) continue;
    const double blocks = BlocksPerSm(m, use);
    const double filled = blocks < 0 ? 1 : std::min(blocks, 1.0);
    const double factor = std::max(1.0, times * filled);
    edit.scales.push_back(Scaled(use, factor));
    larger += factor * use.ns;
  }
  saved += grows - larger / kernels.steps / times;

  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.examples = LongestKernels(m, underfilled);
  const std::string by = Times(times);
  finding.evidence =
      (fills ? "The host's cost of getting work going is " +
                   Percent(launching / m.step_ns()) + " of the step"
             : "Kernels that do not fill the device take " +
                   Percent(under / grows) + " of the compute time") +
      ", and a batch takes " + Bytes(memory.peak - memory.held) + " of " +
      Bytes(memory.total) + " (" + Bytes(memory.held) +
      " are held between steps): a batch " + by + " times as large fits.";
  finding.assumption =
      "gains are per sample; kernels that fill the device take " + by +
      " times as long, the host's work stays as it is";
  finding.fix_cpp = "batch size times " + by +
                    ", with the learning rate tuned again; workers must keep "
                    "up. Gradient accumulation does not help here";
  finding.fix_python = finding.fix_cpp;
  finding.wrong_if =
      "the larger batch converges so much slower that time to accuracy grows";
  return Fire(std::move(finding), std::move(edit), std::max(saved, 0.0));
}

constexpr Rule kRules[] = {
    {.id = "small-batch",
     .question = "Is the batch too small for the device, with room for a "
                 "larger one?",
     .needs = {Kind::kOp},
     .check = &CheckSmallBatch,
     .reference = "Optimization and Performance Tuning with PyTorch, section "
                  "3: larger batches; the ResNet-18 case study, step 3: "
                  "https://towardsdatascience.com/"
                  "pytorch-model-performance-analysis-and-optimization-"
                  "10c3c5822869",
     .detect =
         "Kernels of less than a block per multiprocessor take 30 % of "
         "the compute time, or the host's launching 10 % of the step; "
         "and the memory holds a batch at least twice as large. On a CPU: "
         "what a step costs whatever the batch is so much that doubling "
         "it saves 5 % of a sample's time",
     .avoid = "collectives and optimizer kernels, which do not grow with the "
              "batch; GPU utilisation, which says nothing about filling",
     .fix_cpp = "a larger batch, learning rate tuned again",
     .fix_python = "a larger batch, learning rate tuned again"}};

}  // namespace

extern const std::span<const Rule> kBatch = kRules;

}  // namespace stepscope
