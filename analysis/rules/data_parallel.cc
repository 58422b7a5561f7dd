// One process that drives several GPUs. DataParallel copies the model to every
// GPU in each step, and one Python thread launches for all of them. A model
// that is split by layers keeps only one GPU at work at a time.
// Sources: PyTorch Performance Tuning Guide, distributed training: use
// DistributedDataParallel, one process per GPU; GPipe
// (arxiv.org/abs/1811.06965) on stages that take turns.
#include <stepscope/kernel_class.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "context/rule.h"
#include "device/device_ledger.h"
#include "evidence/gradient_passes.h"
#include "ops/intervals.h"
#include "words/quantities.h"

namespace stepscope {
namespace data_parallel_rules {
namespace {

// Replicas of a model run the same kernels. Different stages of a model do not.
constexpr double kSimilarKernels = 0.8;

// GPUs take turns if two of them compute at once for less than this share of
// the time in which any does, and each has a real part of the work. Our own
// choice.
constexpr double kAtOnce = 0.1;
constexpr double kPartOfWork = 0.1;

struct DeviceUse {
  int64_t busy_ns = 0;
  std::map<NameId, int64_t> kernels;  // calls by name
  bool broadcasts = false;
};

std::map<int32_t, DeviceUse> UsesOf(const AnalysisContext& m) {
  std::map<int32_t, DeviceUse> uses;
  for (const Kernel& kernel : m.trace.kernels()) {
    DeviceUse& use = uses[kernel.device];
    const std::string_view name = m.trace.name(kernel.name);
    if (IsCollectiveKernel(name)) {
      use.broadcasts |= name.find("roadcast") != std::string_view::npos ||
                        name.find("Reduce") != std::string_view::npos;
      continue;
    }
    use.busy_ns += kernel.end_ns - kernel.begin_ns;
    ++use.kernels[kernel.name];
  }
  // A device that runs only collectives computes nothing.
  std::erase_if(uses, [](const auto& use) { return use.second.busy_ns == 0; });
  return uses;
}

// Returns the share of kernel calls that two devices have in common.
double KernelSimilarity(const DeviceUse& a, const DeviceUse& b) {
  int64_t both = 0, all = 0;
  for (const auto& [name, calls] : a.kernels) {
    const auto other = b.kernels.find(name);
    const int64_t others = other == b.kernels.end() ? 0 : other->second;
    both += std::min(calls, others);
    all += std::max(calls, others);
  }
  for (const auto& [name, calls] : b.kernels) {
    if (!a.kernels.contains(name)) all += calls;
  }
  return all > 0 ? static_cast<double>(both) / all : 0;
}

bool HasDataParallelForward(const Trace& trace) {
  return std::ranges::any_of(trace.ranges(), [&](const Range& range) {
    return trace.name(range.name) == "DataParallel.forward";
  });
}

bool OnSeveralDevices(const Trace& trace) {
  return std::ranges::any_of(trace.kernels(), [&](const Kernel& kernel) {
    return kernel.device != trace.kernels().front().device;
  });
}

Verdict CheckDataParallel(const AnalysisContext& m) {
  if (!OnSeveralDevices(m.trace)) return Clean();
  const std::map<int32_t, DeviceUse> uses = UsesOf(m);
  if (uses.size() < 2) return Clean();
  const bool marked = HasDataParallelForward(m.trace);
  const DeviceUse& first = uses.begin()->second;
  // Without the DataParallel.forward range, both signs are needed. The stages
  // of one model may also run on several GPUs of one process, but with
  // different kernels.
  const bool replicas = std::ranges::all_of(uses, [&](const auto& use) {
    return use.second.broadcasts &&
           KernelSimilarity(first, use.second) >= kSimilarKernels;
  });
  if (!marked && !replicas) return Clean();

  double most = 0, sum = 0;
  for (const auto& [device, use] : uses) {
    most = std::max<double>(most, use.busy_ns);
    sum += use.busy_ns;
  }
  const double windows = static_cast<double>(m.steps.windows.size());
  const double imbalance = (most - sum / uses.size()) / windows;
  const double moving =
      m.MeanNs(Cause::kCommunication) + m.MeanNs(Cause::kCopy);
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence =
      "One process computes on " + std::to_string(uses.size()) + " GPUs" +
      (marked
           ? " in DataParallel.forward"
           : ", with the same kernels on each and collectives between them") +
      ". Every step sends out the model and the batch and collects the results "
      "(" +
      Milliseconds(moving * 1e-6) + " exposed), and the busiest GPU computes " +
      Milliseconds(imbalance * 1e-6) + " longer than the mean.";
  finding.where = marked ? "DataParallel.forward" : "";
  finding.assumption =
      "at best, only the gradients are sent, and this overlaps with backward";
  finding.fix_cpp =
      "run one process per GPU and reduce gradients with a c10d::ProcessGroup "
      "instead of torch::nn::parallel::data_parallel";
  finding.fix_python =
      "use torchrun --nproc-per-node=N and DistributedDataParallel instead of "
      "DataParallel";
  finding.wrong_if = "the GPUs hold different parts of one model";
  return FireBound(std::move(finding), moving + imbalance);
}

// How the GPUs share the steady steps.
struct Turns {
  std::map<int32_t, int64_t> busy_ns;  // by device
  int64_t any_ns = 0;                  // at least one computes
  double steps = 0;
  int64_t sum_ns() const {
    int64_t sum = 0;
    for (const auto& [device, ns] : busy_ns) sum += ns;
    return sum;
  }
  int64_t most_ns() const {
    int64_t most = 0;
    for (const auto& [device, ns] : busy_ns) most = std::max(most, ns);
    return most;
  }
};

Turns MeasureTurns(const AnalysisContext& m) {
  std::map<int32_t, std::vector<Span>> spans;
  for (const Kernel& kernel : m.trace.kernels()) {
    if (IsCollectiveKernel(m.trace.name(kernel.name))) continue;
    spans[kernel.device].push_back({kernel.begin_ns, kernel.end_ns});
  }
  std::vector<Span> all;
  for (auto& [device, of_device] : spans) {
    of_device = Merge(std::move(of_device));
    all.insert(all.end(), of_device.begin(), of_device.end());
  }
  all = Merge(std::move(all));
  Turns turns;
  for (size_t i : m.steps.steady) {
    const Span window = m.steps.windows[i].tiled;
    turns.any_ns += LengthIn(all, window);
    for (const auto& [device, of_device] : spans) {
      turns.busy_ns[device] += LengthIn(of_device, window);
    }
  }
  turns.steps = static_cast<double>(m.steps.steady.size());
  return turns;
}

// "GPU 0 computes for 20 ms, GPU 1 for 30 ms"
std::string BusyInWords(const Turns& turns) {
  std::vector<std::string> parts;
  for (const auto& [device, ns] : turns.busy_ns) {
    parts.push_back("GPU " + std::to_string(device) +
                    (parts.empty() ? " computes for " : " for ") +
                    Milliseconds(static_cast<double>(ns) / turns.steps * 1e-6));
  }
  return ListedWithAnd(parts);
}

Verdict CheckGpusTakeTurns(const AnalysisContext& m) {
  if (!OnSeveralDevices(m.trace) || HasDataParallelForward(m.trace)) {
    return Clean();
  }
  Turns turns = MeasureTurns(m);
  const auto sum = static_cast<double>(turns.sum_ns());
  std::erase_if(turns.busy_ns, [&](const auto& device) {
    return static_cast<double>(device.second) < kPartOfWork * sum;
  });
  // The kernels may all run outside the steady steps.
  if (turns.busy_ns.size() < 2 || turns.any_ns == 0) return Clean();
  const auto any = static_cast<double>(turns.any_ns);
  const double at_once = (sum - any) / any;
  if (at_once >= kAtOnce) return Clean();
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      "One process computes on " + std::to_string(turns.busy_ns.size()) +
      " GPUs that take turns: in " + Percent(1 - at_once) +
      " of the time in which any of them computes, the others wait. " +
      BusyInWords(turns) + " of the " + Milliseconds(m.step_ns() * 1e-6) +
      " step.";
  finding.assumption =
      "at best: the other GPUs compute while the busiest one does; with m "
      "micro-batches on n GPUs, (n - 1) / (m + n - 1) of the time is lost";
  const bool infers = OnlyInfers(m);
  finding.fix_python =
      infers
          ? "if the model fits, put a replica on each GPU, each with its own "
            "requests; else split every layer over the GPUs (tensor "
            "parallelism) in place of a device map by layers"
          : "one process per GPU: DistributedDataParallel if the model "
            "fits on one, else fully_shard() (FSDP); to keep the split by "
            "layers, micro-batches with torch.distributed.pipelining";
  finding.fix_cpp =
      infers
          ? "a replica per GPU, each with its own requests"
          : "one process per GPU with a c10d::ProcessGroup, or micro-batches "
            "that follow each other through the stages";
  finding.wrong_if =
      "the GPUs work on tasks that depend on each other and cannot be split";
  const double bound =
      (any - static_cast<double>(turns.most_ns())) / std::max(turns.steps, 1.0);
  return FireBound(std::move(finding), bound);
}

constexpr Rule kRules[] = {
    {.id = "gpus-take-turns",
     .question = "Do the GPUs of one process wait for each other in turn?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel},
     .causes = {Cause::kDependency, Cause::kSync, Cause::kCopy},
     .check = &CheckGpusTakeTurns,
     .reference = "GPipe: https://arxiv.org/abs/1811.06965",
     .detect = "two GPUs or more with a tenth of the computing each, of which "
               "two compute at once for less than 10 % of the time in which "
               "any does",
     .avoid = "the GPUs compute at the same time, or the others only hold "
              "results",
     .fix_cpp = "one process per GPU, or micro-batches",
     .fix_python = "DistributedDataParallel or FSDP with one process per GPU; "
                   "micro-batches with torch.distributed.pipelining; in "
                   "inference, a replica per GPU or tensor parallelism"},
    {.id = "dataparallel",
     .question = "Does one process drive several GPUs with DataParallel?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel},
     .causes = {Cause::kCommunication, Cause::kCopy, Cause::kDispatch,
                Cause::kHostCode},
     .check = &CheckDataParallel,
     .reference = "PyTorch Performance Tuning Guide, distributed training: use "
                  "DistributedDataParallel",
     .detect = "the trace has a DataParallel.forward range, or one process "
               "launches the same kernels (80 % of them) on two GPUs or more, "
               "with collectives between them",
     .avoid = "the GPUs run different kernels or no NCCL kernels, as in model "
              "parallelism",
     .fix_cpp = "run one process per GPU with a c10d::ProcessGroup",
     .fix_python = "use DistributedDataParallel with one process per GPU"}};

}  // namespace
}  // namespace data_parallel_rules

extern const std::span<const Rule> kDataParallel = data_parallel_rules::kRules;

}  // namespace stepscope
