// Does one process drive several GPUs with DataParallel?
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
namespace {

// Replicas run the same kernels; stages of one model do not.
constexpr double kAlike = 0.8;

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
  std::erase_if(uses, [](const auto& use) { return use.second.busy_ns == 0; });
  return uses;
}

// The share of their kernels that two devices have in common.
double Likeness(const DeviceUse& a, const DeviceUse& b) {
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

Verdict CheckDataParallel(const AnalysisContext& m) {
  const std::map<int32_t, DeviceUse> uses = UsesOf(m);
  if (uses.size() < 2) return Clean();
  const bool marked = HasDataParallelForward(m.trace);
  const DeviceUse& first = uses.begin()->second;
  const bool replicas = std::ranges::all_of(uses, [&](const auto& use) {
    return use.second.broadcasts && Likeness(first, use.second) >= kAlike;
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
      (marked ? " in DataParallel.forward"
              : ", with the same kernels on each and collectives between") +
      ": model and batch are sent out and collected in every step (" +
      Milliseconds(moving * 1e-6) + " exposed), and the busiest GPU computes " +
      Milliseconds(imbalance * 1e-6) + " longer than the mean.";
  finding.where = marked ? "DataParallel.forward" : "";
  finding.assumption =
      "at best: nothing but the gradients is sent, hidden behind backward";
  finding.fix_cpp =
      "one process per GPU, gradients reduced by a c10d::ProcessGroup, instead "
      "of torch::nn::parallel::data_parallel";
  finding.fix_python =
      "torchrun --nproc-per-node=N and DistributedDataParallel instead of "
      "DataParallel";
  finding.wrong_if = "the GPUs hold different parts of one model";
  return FireBound(std::move(finding), moving + imbalance);
}

constexpr Rule kRules[] = {
    {.id = "dataparallel",
     .question = "Does one process drive several GPUs with DataParallel?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel},
     .check = &CheckDataParallel,
     .reference = "PyTorch Performance Tuning Guide, distributed training: use "
                  "DistributedDataParallel",
     .detect = "a DataParallel.forward range, or the same kernels (80 % of "
               "them) on two GPUs or more with collectives between them, all "
               "launched by one process",
     .avoid = "model parallelism: other kernels on each GPU, or none of NCCL's",
     .fix_cpp = "one process per GPU, a c10d::ProcessGroup",
     .fix_python = "DistributedDataParallel, one process per GPU"}};

}  // namespace

extern const std::span<const Rule> kDataParallel = kRules;

}  // namespace stepscope
