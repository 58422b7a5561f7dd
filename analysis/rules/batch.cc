// Is the batch too small for the device, and does a larger one fit?
// Sources: the ResNet-18 case study, step 3 (batch 32 to 512: 1200 to 1584
// images/s at the same utilisation); "17 tips", number 3. GPU utilisation is
// not a criterion: kernels that fill half of the GPU keep it busy too.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "device/device_numbers.h"
#include "evidence/gradient_passes.h"
#include "evidence/kernel_evidence.h"
#include "evidence/program/op_loops.h"
#include "evidence/program/recurrence.h"
#include "replay/cpu/node_stacks.h"
#include "words/quantities.h"

namespace stepscope {
namespace batch_rules {
namespace {

constexpr double kWaitsForRanks = 0.03;  // of the step

constexpr double kUnderfilled = 0.30;  // of the compute time
constexpr double kLaunching = 0.10;    // of the step
constexpr double kHeadroom = 2;        // the batch must fit at least twice
constexpr double kUsable = 0.9;        // of the device's memory
constexpr double kMostBatch = 16;
// On a CPU, each doubling of the batch must save this share of the time per
// sample. At most two doublings are tried, because predicted gains were about
// half of the measured ones.
constexpr double kWorthDoubling = 0.04;
constexpr double kMostBatchOnCpu = 4;
// If moving weights takes less than this share of a step, the batch is not
// small. The same share of the compute time makes a device count as
// underfilled.
constexpr double kMovingShare = kUnderfilled;

// Returns the blocks per multiprocessor; -1 if unknown.
double BlocksPerSm(const AnalysisContext& m, const KernelUse& use) {
  const Kernel& kernel = m.trace.kernels()[use.kernel];
  if (kernel.blocks_per_sm >= 0) return kernel.blocks_per_sm;
  const double blocks = BlocksOf(m.trace, kernel);
  const int sms = m.kernels.device.sm_count;
  return blocks > 0 && sms > 0 ? blocks / sms : -1;
}

// True unless the kernel reduces or updates gradients and weights, whose size
// does not depend on the batch.
bool GrowsWithBatch(const KernelUse& use) {
  return use.kind != KernelClass::kCommunication &&
         use.kind != KernelClass::kOptimizer && !use.in_optimizer;
}

// Device memory over the steady steps, in bytes; -1 if unknown.
struct Memory {
  double held = -1;  // at the start of steps: weights and optimizer state
  double peak = -1;
  double total = -1;
  // Returns how many times the memory of one batch fits.
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

// Names the change to a batch `by` times as large.
std::string LargerBatch(const std::string& by, bool infers) {
  return "multiply the batch size by " + by +
         (infers ? ": run several inputs or requests in one pass"
                 : " and tune the learning rate again");
}

std::string WrongIf(bool infers) {
  return infers ? "the time until one request is answered matters more than "
                  "how many are answered per second, or too few inputs wait "
                  "at once to fill the batch"
                : "the larger batch converges so slowly that the time to "
                  "accuracy grows";
}

Alternative LargerOnCpu(double times, bool infers) {
  const std::string by = Times(times);
  Alternative larger{.edit = {.batch = times}};
  larger.wording.assumption =
      "a batch " + by +
      " times as large fits into memory; compute-bound ops take " + by +
      " times as long";
  if (infers) larger.wording.assumption += std::string("; ") + kSeemsToInfer;
  larger.wording.fix_cpp = LargerBatch(by, infers);
  larger.wording.fix_python = larger.wording.fix_cpp;
  return larger;
}

// Returns the spans on the training thread of loops that call ops for one
// element or position at a time, including their backward passes.
std::vector<Span> LoopSpans(const AnalysisContext& m) {
  std::vector<Span> spans;
  const auto add_nodes = [&](const std::vector<RowId>& nodes) {
    for (RowId row : nodes) {
      const Op& op = m.trace.ops()[row];
      if (op.thread == m.steps.thread)
        spans.push_back({op.begin_ns, op.end_ns});
    }
  };
  for (const Recurrence& one : FindRecurrences(m)) {
    spans.push_back(one.forward);
    add_nodes(one.nodes);
  }
  for (const OpLoop& one : FindOpLoops(m)) {
    spans.push_back(one.forward);
    add_nodes(m.backward.Of(m.steps.thread, one.forward));
  }
  return Merge(std::move(spans));
}

// How the time of a CPU-only run depends on the batch, in ns over all steps.
struct FixedCost {
  double whole = 0;    // all of the steps
  double grows = 0;    // the part in proportion to the batch
  double weights = 0;  // moving weights, gradients and optimizer state
};

// Leaves out weights that a loop moves in each of its passes. Once the loop is
// replaced by one call, they move only once, whatever the batch.
FixedCost FixedCostOf(const CpuProgram& program,
                      const std::vector<Span>& loops) {
  FixedCost cost;
  for (const auto& step : program.steps) {
    for (const Work& work : step) {
      const double grows =
          work.kind == WorkKind::kLoader ? work.ns : work.grows_ns;
      cost.whole += work.ns;
      cost.grows += grows;
      if (work.update == Update::kComputing) {
        cost.weights += work.ns;
      } else if (work.kind == WorkKind::kParallel &&
                 work.tag == WorkTag::kNone &&
                 2 * LengthIn(loops, work.span) <= work.span.length()) {
        cost.weights +=
            std::max(0.0, work.ns - grows - kOpOwnNs * std::max(1, work.ops));
      }
    }
  }
  return cost;
}

// On a CPU a larger batch spreads the fixed cost of a step over more samples.
// Only the time for moving weights shows that a batch is small for the machine.
// The amount of framework and program code per step says nothing about the
// batch, and no recording shows how much of it grows with the batch.
Verdict CheckSmallBatchOnCpu(const AnalysisContext& m) {
  if (!m.replay.check().valid) {
    return Skip(
        "replay is not valid for this recording, so the gain of a larger batch "
        "cannot be predicted");
  }
  if (m.MeanNs(Cause::kCommunication) >= kWaitsForRanks * m.step_ns()) {
    return Skip(
        "the step waits for other ranks, and this trace does not show how long "
        "they would take for a larger batch");
  }
  const CpuProgram& program = m.replay.program();
  const FixedCost cost = FixedCostOf(program, LoopSpans(m));
  if (cost.grows <= 0) return Clean();
  const double steps = static_cast<double>(program.steps.size());
  const double fixed = cost.whole - cost.grows;
  const bool infers = OnlyInfers(m);
  Finding finding;
  finding.confidence = Confidence::kHint;
  finding.evidence =
      Milliseconds(fixed / steps * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) + " step (" +
      Percent(fixed / std::max(cost.whole, 1.0)) +
      ") do not depend on the batch size: " +
      Milliseconds(cost.weights / steps * 1e-6) +
      (infers ? " move weights"
              : " move weights, gradients and the optimizer's state") +
      ", the rest is code "
      "between ops. The gain is normalised to the recorded batch size.";
  finding.wrong_if = WrongIf(infers);
  Found found{.finding = std::move(finding),
              .choice = Choice::kLadder,
              .worth = kWorthDoubling,
              .at_most = cost.weights >= kMovingShare * cost.whole
                             ? FindingSeverity::kMedium
                             : FindingSeverity::kNote};
  for (double times = 2; times <= kMostBatchOnCpu; times *= 2) {
    found.alternatives.push_back(LargerOnCpu(times, infers));
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
        "the device memory that a batch takes was not recorded "
        "(profile_memory), so it is unknown whether a larger batch fits");
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
      (fills ? "The GPU waits for the host to launch work for " +
                   Percent(launching / m.step_ns()) + " of the step."
             : "Kernels with less than one block per multiprocessor take " +
                   Percent(under / grows) + " of the compute time.") +
      " A batch takes " + Bytes(memory.peak - memory.held) + ", and " +
      Bytes(memory.held) + " stay allocated between steps. The device has " +
      Bytes(memory.total) + ", so a batch " + by + " times as large fits.";
  finding.assumption =
      "the gain is normalised to the recorded batch size; kernels that fill "
      "the device take " +
      by + " times as long, and the host's time per step does not change";
  const bool infers = OnlyInfers(m);
  if (infers) finding.assumption += std::string("; ") + kSeemsToInfer;
  finding.fix_cpp =
      LargerBatch(by, infers) +
      (infers ? "; what prepares the inputs must keep up"
              : "; the loader's workers must keep up. Gradient accumulation "
                "does not help here");
  finding.fix_python = finding.fix_cpp;
  finding.wrong_if = WrongIf(infers);
  return Fire(std::move(finding), std::move(edit), std::max(saved, 0.0));
}

constexpr Rule kRules[] = {
    {.id = "small-batch",
     .question = "Is the batch too small for the device, and does a larger "
                 "one fit?",
     .needs = {Kind::kOp},
     .causes = {Cause::kDispatch, Cause::kHostCode, Cause::kCompute},
     .check = &CheckSmallBatch,
     .reference = "Optimization and Performance Tuning with PyTorch, section "
                  "3: larger batches; the ResNet-18 case study, step 3: "
                  "https://towardsdatascience.com/"
                  "pytorch-model-performance-analysis-and-optimization-"
                  "10c3c5822869",
     .detect =
         "kernels with less than one block per multiprocessor take 30 % of the "
         "compute time, or the GPU waits for launches for 10 % of the step, "
         "and a batch at least twice as large fits into memory. On a CPU: the "
         "part of a step that does not depend on the batch size is so large "
         "that doubling the batch saves 4 % of the time per sample. The "
         "finding is a hint, and only a note unless moving weights, gradients "
         "and the optimizer's state takes 30 % of the step: code between ops "
         "is no sign of a small batch, nor are weights that a loop over "
         "positions or elements moves again and again",
     .avoid = "only collectives or optimizer kernels are small: they do not "
              "grow with the batch. GPU utilisation is ignored, because it "
              "does not show how full the GPU is",
     .fix_cpp = "use a larger batch; in training, tune the learning rate again",
     .fix_python =
         "use a larger batch; in training, tune the learning rate again"}};

}  // namespace
}  // namespace batch_rules

extern const std::span<const Rule> kBatch = batch_rules::kRules;

}  // namespace stepscope
