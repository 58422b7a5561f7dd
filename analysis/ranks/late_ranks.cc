#include "ranks/late_ranks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "steps/steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// A rank is late from this share of the step on.
constexpr double kLateShare = 0.01;
// Ranks run the same kernels if their counts per step differ by less on
// average.
constexpr double kSameKernels = 0.5;

// Returns the median of `of` over the ranks that do the same work as
// `straggler`; -1 if it is unknown.
double OfOthers(const RankComparison& ranks, const RankRow& straggler,
                double RankRow::*of) {
  std::vector<double> others;
  for (const RankRow& row : ranks.rows) {
    if (AreAlike(row, straggler) && row.*of > 0) others.push_back(row.*of);
  }
  return others.empty() ? -1 : Median(others);
}

// Why a rank with a GPU computes longer: its clock, slower kernels, or more
// kernels.
enum class Longer : uint8_t { kUnknown, kClock, kSlower, kMore };

Longer WhyLonger(const RankComparison& ranks, const RankRow& row) {
  const double busy = OfOthers(ranks, row, &RankRow::busy_ms);
  const double clock = OfOthers(ranks, row, &RankRow::sm_clock_mhz);
  const double kernels = OfOthers(ranks, row, &RankRow::kernels);
  if (!ranks.has_gpu || busy <= 0) return Longer::kUnknown;
  // Computing time is a product: length of a clock cycle x number of kernels x
  // cycles per kernel. The larger factor is the reason: first the clock
  // compared with the rest, and then within the rest.
  double rest = row.busy_ms / busy;
  if (clock > 0 && row.sm_clock_mhz > 0) {
    const double cycle = clock / row.sm_clock_mhz;
    rest /= cycle;
    if (cycle >= rest) return Longer::kClock;
  }
  if (kernels <= 0 || row.kernels <= 0) return Longer::kUnknown;
  const double more = row.kernels / kernels;
  return more >= rest / more ? Longer::kMore : Longer::kSlower;
}

std::string ComputeFixOf(const RankComparison& ranks, const RankRow& row) {
  switch (WhyLonger(ranks, row)) {
    case Longer::kClock:
      return "its GPU runs at a lower clock: check its temperature, power "
             "limit "
             "and throttle reasons (nvidia-smi -q -d PERFORMANCE)";
    case Longer::kMore:
      return "it has more work: give all ranks batches of equal size, and do "
             "what only one rank needs (metrics, samples) on all of them or "
             "seldom";
    case Longer::kSlower:
      return std::string("the same kernels take longer: ") +
             (HasLargerBatches(ranks, row)
                  ? "its inputs have other shapes, so balance the batches"
                  : "its batches are larger, or its GPU is slower or shared; "
                    "compare its clocks and other processes (nvidia-smi) with "
                    "those of the others");
    case Longer::kUnknown:
      break;
  }
  return std::string("it computes longer: compare ") +
         (ranks.has_gpu ? "the clocks, temperature and power limit of its "
                          "device with the others"
                        : "its cores and the other programs on them with those "
                          "of the other ranks") +
         "; if its batches are larger, balance them";
}

}  // namespace

bool AreAlike(const RankRow& a, const RankRow& b) {
  return a.rank != b.rank && a.stage == b.stage;
}

std::pair<std::string, double> CauseOf(const RankComparison& ranks,
                                       const RankRow& straggler) {
  std::pair<std::string, double> worst;
  for (const auto& [key, ms] : straggler.time_split_ms) {
    // Communication is the waiting itself, and nothing can be advised about
    // unknown time.
    if (key == "communication" || key == "unknown") continue;
    std::vector<double> others;
    for (const RankRow& row : ranks.rows) {
      if (!AreAlike(row, straggler)) continue;
      const auto it = row.time_split_ms.find(key);
      others.push_back(it == row.time_split_ms.end() ? 0 : it->second);
    }
    if (others.empty()) return {};
    const double more = ms - Median(others);
    if (more > worst.second) worst = {key, more};
  }
  if (worst.second < kLateShare * ranks.step_ms) return {};
  return worst;
}

bool HasLargerBatches(const RankComparison& ranks, const RankRow& row) {
  // A rank that runs an additional op also has other shapes, but more kernels.
  const double others = OfOthers(ranks, row, &RankRow::kernels);
  return 2 * ranks.steps_of_other_shapes > ranks.steps &&
         CauseOf(ranks, row).first == "compute" &&
         WhyLonger(ranks, row) == Longer::kSlower &&
         std::abs(row.kernels - others) < kSameKernels;
}

namespace {

// Returns "" if the clocks are unknown.
std::string ClocksInWords(const RankComparison& ranks, const RankRow& row) {
  const double others = OfOthers(ranks, row, &RankRow::sm_clock_mhz);
  if (others <= 0 || row.sm_clock_mhz <= 0) return "";
  if (Number(row.sm_clock_mhz) == Number(others)) return ", at the same clock";
  return ", at " + Number(row.sm_clock_mhz) +
         " MHz (the others: " + Number(others) + " MHz)";
}

}  // namespace

std::string LongerInWords(const RankComparison& ranks, const RankRow& row) {
  switch (WhyLonger(ranks, row)) {
    case Longer::kClock:
      return " Its GPU ran at " + Number(row.sm_clock_mhz) +
             " MHz on average, those of the others at " +
             Number(OfOthers(ranks, row, &RankRow::sm_clock_mhz)) + " MHz.";
    case Longer::kSlower: {
      const std::string own = Number(row.kernels),
                        others =
                            Number(OfOthers(ranks, row, &RankRow::kernels));
      return (own == others
                  ? " It runs as many kernels as the others; they take longer"
                  : " It runs " + own + " kernels per step, the others " +
                        others + ", but they take longer as well") +
             ClocksInWords(ranks, row) + ".";
    }
    case Longer::kMore:
      return " It runs " + Number(row.kernels) +
             " kernels per step, the others " +
             Number(OfOthers(ranks, row, &RankRow::kernels)) + ".";
    case Longer::kUnknown:
      break;
  }
  return "";
}

std::string FixOf(const std::string& cause, const RankComparison& ranks,
                  const RankRow& row) {
  const bool has_gpu = ranks.has_gpu;
  if (cause == "data") {
    return "its loader is slow: check its storage and cores, give it as many "
           "workers as the others, and shard by bytes instead of by count";
  }
  if (cause == "compute") return ComputeFixOf(ranks, row);
  if (cause == "dispatch" || cause == "host_code") {
    return std::string("its host is slow: pin the rank to ") +
           (has_gpu ? "the NUMA node of its GPU" : "cores of one NUMA node") +
           ", and keep other processes off its cores";
  }
  if (cause == "blocking_copy" || cause == "sync" || cause == "copy") {
    return "it waits for copies: let only one rank log or save, from a "
           "separate thread";
  }
  if (cause == "contended") {
    return "other programs, or other ranks, take its cores: move them, or pin "
           "each rank to cores of its own";
  }
  if (cause == "allocator") {
    return "it allocates memory during training because its shapes vary more: "
           "run the largest batch first";
  }
  return "compare its host, device and data with those of the others";
}

RankComparison ByHost(const RankComparison& ranks) {
  std::map<std::string, std::vector<const RankRow*>> hosts;
  for (const RankRow& row : ranks.rows) hosts[row.host].push_back(&row);
  RankComparison machines = ranks;
  machines.rows.clear();
  machines.waits.clear();
  if (hosts.contains("") || hosts.size() < 2 ||
      hosts.size() == ranks.rows.size()) {
    return machines;
  }
  std::map<int32_t, int32_t> machine_of;
  for (const auto& [host, rows] : hosts) {
    const double share = 1 / static_cast<double>(rows.size());
    RankRow sum;
    sum.rank = static_cast<int32_t>(machines.rows.size());
    sum.host = host;
    // The default is -1, which must not be part of the sum.
    sum.host_ms = 0;
    for (const RankRow* row : rows) {
      machine_of[row->rank] = sum.rank;
      for (double RankRow::*of :
           {&RankRow::step_ms, &RankRow::noise_ms, &RankRow::host_noise_ms,
            &RankRow::busy_ms, &RankRow::exposed_ms, &RankRow::waiting_ms,
            &RankRow::late_ms, &RankRow::host_ms, &RankRow::loading_ms}) {
        sum.*of += share * row->*of;
      }
      sum.last += row->last;
      for (const auto& [cause, ms] : row->time_split_ms) {
        sum.time_split_ms[cause] += share * ms;
      }
    }
    // If the time of one rank is unknown, so is the machine's time.
    if (std::ranges::any_of(
            rows, [](const RankRow* row) { return row->host_ms < 0; })) {
      sum.host_ms = -1;
    }
    machines.rows.push_back(std::move(sum));
  }
  std::map<std::pair<int32_t, int32_t>, double> waits;
  for (const RankWait& wait : ranks.waits) {
    waits[{machine_of[wait.rank], machine_of[wait.waits_for]}] += wait.ms;
  }
  for (const auto& [pair, ms] : waits) {
    // Waits between ranks of the same machine say nothing about machines.
    if (pair.first == pair.second) continue;
    machines.waits.push_back(
        {.rank = pair.first, .waits_for = pair.second, .ms = ms});
  }
  return machines;
}

}  // namespace stepscope
