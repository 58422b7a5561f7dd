#include "evidence/collectives/transfers.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>

#include "evidence/gradient_passes.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr int64_t kBigBytes = 1 << 20;  // large enough to measure a rate by

}  // namespace

std::optional<double> ExplainedNs(
    const AnalysisContext& m,
    const std::function<double(const Collective&)>& transfer_ns) {
  double moving = 0;
  for (const Collective& one : m.collectives) {
    if (one.step == kNoStep ||
        m.steps.windows[one.step].kind != StepKind::kSteady) {
      continue;
    }
    const double transfer = transfer_ns(one);
    if (transfer < 0) return {};
    // A transfer explains at most the exposed time of its collective.
    moving += std::min<double>(transfer, one.exposed_ns);
  }
  return moving / m.steps.steady.size();
}

std::optional<double> TransfersNs(const AnalysisContext& m, double bandwidth) {
  return ExplainedNs(m, [&](const Collective& one) {
    return TransferNs(one, bandwidth, m.trace.run().world_size);
  });
}

bool WaitsByChance(const AnalysisContext& m, double exposed) {
  const int32_t ranks = m.trace.run().world_size;
  const double bandwidth = BestBusBandwidth(m.collectives, ranks);
  if (m.has_gpu || bandwidth <= 0 || ranks < 2) return false;
  const std::optional<double> moving = TransfersNs(m, bandwidth);
  return moving && *moving < kMostMoving * exposed &&
         exposed - *moving <=
             std::sqrt(2 * std::log(ranks)) * m.stats.cov * m.step_ns();
}

std::string TransferOrWait(const AnalysisContext& m) {
  const int32_t ranks = m.trace.run().world_size;
  const double bandwidth = BestBusBandwidth(m.collectives, ranks);
  int64_t largest = -1;
  for (const Collective& one : m.collectives) {
    if (one.step != kNoStep) largest = std::max(largest, one.bytes);
  }
  if (bandwidth <= 0 && largest >= 0) {
    return largest < kBigBytes
               ? " None of them moves 1 MiB or more, so most of their time is "
                 "latency or waiting for other ranks."
               : " The number of ranks was not recorded, so transfers and "
                 "waiting for other ranks cannot be distinguished.";
  }
  const std::optional<double> moving = TransfersNs(m, bandwidth);
  if (!moving) {
    return " Sizes were not recorded, so transfers and waiting for other "
           "ranks cannot be distinguished.";
  }
  return " At the best rate of this recording (" + Number(bandwidth * 1e-9) +
         " GB/s over the bus), transfers explain " +
         Milliseconds(*moving * 1e-6) +
         " of that. The rest is waiting for other ranks or slower transfers; "
         "analyze the traces of all ranks together to see which." +
         (m.has_gpu && bandwidth < kSlowLinkRate
              ? " This rate is slow for GPUs: check how they are connected "
                "(NCCL_DEBUG=INFO prints it) and whether some ranks are always "
                "late."
              : "");
}

}  // namespace stepscope
