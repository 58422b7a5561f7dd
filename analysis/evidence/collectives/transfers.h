// How much of the time in which the step waits for collectives is spent on
// moving bytes. The rest is latency or waiting for other ranks, which the trace
// of one rank cannot split any further. These functions have no state, so any
// thread may call them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "context/analysis_context.h"
#include "device/collectives.h"

namespace stepscope {

// In bytes per second: less than half of the rate of a PCIe 3 slot, or of a 100
// Gbit/s network.
inline constexpr double kSlowLinkRate = 6e9;
// If moving bytes takes less than this share of the exposed time, the rest is
// waiting.
inline constexpr double kMostMoving = 0.5;

// Returns how much of the exposed time, in ns per step, is explained by
// transfers that take `transfer_ns(collective)`; nullopt if sizes were not
// recorded.
std::optional<double> ExplainedNs(
    const AnalysisContext& m,
    const std::function<double(const Collective&)>& transfer_ns);

// The same for transfers that all run at `bandwidth` (as in TransferNs()).
std::optional<double> TransfersNs(const AnalysisContext& m, double bandwidth);

// True on a CPU if transfers explain less than half of the exposed time, and
// the rest is within the variation of the steps. If the steps of N ranks vary
// alike, the slowest rank is on average at most sqrt(2 ln N) standard
// deviations later than the mean, and no choice of buckets makes that shorter.
bool WaitsByChance(const AnalysisContext& m, double exposed);

// How long the first all-reduce of a backward pass takes, beside the others.
struct FirstReduces {
  double first_ns = 0, rest_ns = 0;  // means over the passes; rest: of medians
  double waiting_ns = 0;             // the difference, per steady step
};

// DDP's first bucket is the smallest. If it takes several times as long as the
// others in most passes, this rank waits there for ranks that arrive later.
// nullopt if not, or if sizes are known, which tell more.
std::optional<FirstReduces> WaitsAtTheFirst(const AnalysisContext& m);

// Ends what TransferOrWait() returns if the sizes tell the transfers' part.
inline constexpr std::string_view kRestIsUnknown =
    " The rest is waiting for other ranks or slower transfers; analyze the "
    "traces of all ranks together to see which.";

// Returns a sentence that splits the exposed time into moving the bytes and the
// rest.
std::string TransferOrWait(const AnalysisContext& m);

}  // namespace stepscope
