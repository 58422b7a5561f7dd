#include "gpu/compare_work.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace stepscope {
namespace {

// Durations by the name of the work.
using Work = std::map<std::string, std::vector<int64_t>>;

Work WorkIn(const Trace& trace) {
  Work work;
  for (const Kernel& kernel : trace.kernels()) {
    work["kernel " + std::string(trace.name(kernel.name))].push_back(
        kernel.end_ns - kernel.begin_ns);
  }
  for (const Copy& copy : trace.copies()) {
    work["copy " + NameOfCopy(trace, copy) + " of " +
         std::to_string(copy.bytes) + " bytes"]
        .push_back(copy.end_ns - copy.begin_ns);
  }
  for (const Memset& memset : trace.memsets()) {
    work["memset of " + std::to_string(memset.bytes) + " bytes"].push_back(
        memset.end_ns - memset.begin_ns);
  }
  return work;
}

double Median(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  if (values.size() % 2 == 1) return static_cast<double>(values[half]);
  return static_cast<double>(values[half - 1] + values[half]) / 2;
}

size_t CountIn(const Work& work, const std::string& name) {
  const auto found = work.find(name);
  return found == work.end() ? 0 : found->second.size();
}

std::string Ns(double ns) { return std::to_string(std::llround(ns)) + " ns"; }

const char* TextOf(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kPageable:
      return "Pageable";
    case MemoryKind::kPinned:
      return "Pinned";
    case MemoryKind::kDevice:
      return "Device";
    case MemoryKind::kArray:
      return "Array";
    case MemoryKind::kManaged:
      return "Managed";
    case MemoryKind::kHost:
      return "Host";
    case MemoryKind::kUnknown:
      break;
  }
  return "Unknown";
}

}  // namespace

std::string NameOfCopy(const Trace&, const Copy& copy) {
  return std::string(TextOf(copy.source)) + " -> " + TextOf(copy.destination);
}

std::vector<std::string> DifferencesInWork(const Trace& ours,
                                           const std::vector<Trace>& theirs,
                                           const CompareOptions& options) {
  const Work mine = WorkIn(ours);
  std::vector<Work> runs;
  for (const Trace& trace : theirs) runs.push_back(WorkIn(trace));
  std::set<std::string> names;
  for (const auto& [name, durations] : mine) names.insert(name);
  for (const auto& [name, durations] : runs.front()) names.insert(name);

  std::vector<std::string> differences;
  for (const std::string& name : names) {
    const size_t count = CountIn(mine, name);
    const size_t expected = CountIn(runs.front(), name);
    if (count != expected) {
      differences.push_back(name + ": " + std::to_string(count) +
                            " times, the other profiler " +
                            std::to_string(expected));
      continue;
    }
    if (static_cast<int64_t>(count) < options.least_repeats) continue;
    double low = INFINITY;
    double high = 0;
    for (const Work& run : runs) {
      if (CountIn(run, name) == 0) continue;
      const double median = Median(run.at(name));
      low = std::min(low, median);
      high = std::max(high, median);
    }
    const double median = Median(mine.at(name));
    const double slack = std::max(options.least_tolerance * high,
                                  static_cast<double>(options.tick_ns));
    if (median >= low - slack && median <= high + slack) continue;
    differences.push_back(name + ": median " + Ns(median) +
                          ", the other profiler " + Ns(low) + " to " +
                          Ns(high));
  }
  return differences;
}

}  // namespace stepscope
