#include "evidence/collectives/transfers.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "evidence/gradient_passes.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr int64_t kBigBytes = 1 << 20;  // large enough to measure a rate by
// Fewer all-reduces have no usual length, and smaller factors may be chance.
// Our own choices.
constexpr size_t kFewestReduces = 4;
constexpr double kWaitingTimes = 4;
constexpr double kMostPasses = 2.0 / 3;

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

std::optional<FirstReduces> WaitsAtTheFirst(const AnalysisContext& m) {
  FirstReduces found;
  double passes = 0, waiting = 0;
  for (const GradientPass& pass :
       FindGradientPasses(m.trace, m.tree, m.steps, m.collectives)) {
    if (pass.sizes_known || pass.collectives.size() < kFewestReduces) continue;
    const auto ns_of = [&](size_t i) {
      return static_cast<double>(m.collectives[i].moved.length());
    };
    std::vector<double> rest;
    for (size_t i : pass.collectives) rest.push_back(ns_of(i));
    const double first = rest.front();
    rest.erase(rest.begin());
    const double median = Median(std::move(rest));
    ++passes;
    waiting += first >= kWaitingTimes * median;
    found.first_ns += first;
    found.rest_ns += median;
    found.waiting_ns += std::max(0.0, first - median);
  }
  if (passes == 0 || waiting < kMostPasses * passes) return {};
  found.first_ns /= passes;
  found.rest_ns /= passes;
  found.waiting_ns /= static_cast<double>(m.steps.steady.size());
  return found;
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
    if (const auto waits = WaitsAtTheFirst(m)) {
      return " The first all-reduce of a backward pass takes " +
             Milliseconds(waits->first_ns * 1e-6) + ", the others " +
             Milliseconds(waits->rest_ns * 1e-6) +
             " in the median: this rank waits there for ranks that arrive "
             "later, " +
             Milliseconds(waits->waiting_ns * 1e-6) + " per step.";
    }
    return " Sizes were not recorded, so transfers and waiting for other "
           "ranks cannot be distinguished.";
  }
  return " At the best rate of this recording (" + Number(bandwidth * 1e-9) +
         " GB/s over the bus), transfers explain " +
         Milliseconds(*moving * 1e-6) + " of that." +
         std::string(kRestIsUnknown) +
         (m.has_gpu && bandwidth < kSlowLinkRate
              ? " This rate is slow for GPUs: check how they are connected "
                "(NCCL_DEBUG=INFO prints it) and whether some ranks are always "
                "late."
              : "");
}

}  // namespace stepscope
