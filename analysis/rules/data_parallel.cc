// Does one process drive several GPUs with DataParallel? It copies the model to
// every GPU in each step, and one Python thread launches for all of them.
// Source: PyTorch Performance Tuning Guide, distributed training: use
// DistributedDataParallel, one process per GPU.
#include <stepscope/kernel_class.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "context/rule.h"
#include "device/device_ledger.h"
#include "words/quantities.h"

namespace stepscope {
namespace data_parallel_rules {
namespace {

// Replicas of a model run the same kernels. Different stages of a model do not.
constexpr double kSimilarKernels = 0.8;

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

constexpr Rule kRules[] = {
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
