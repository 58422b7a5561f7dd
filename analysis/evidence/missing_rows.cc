#include "evidence/missing_rows.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string_view>
#include <vector>

namespace stepscope {
namespace {

// Names listed in the report.
constexpr size_t kShown = 2;

bool IsSignOfGpu(std::string_view name) {
  static constexpr std::array<std::string_view, 6> kBegins = {
      "aten::cudnn_",        "aten::_cudnn_", "aten::miopen_",
      "aten::record_stream", "nccl:",         "rccl:"};
  // CPU-only programs call this one, too.
  if (name == "aten::cudnn_is_acceptable") return false;
  return std::ranges::any_of(
      kBegins, [&](std::string_view begin) { return name.starts_with(begin); });
}

}  // namespace

std::string SignsOfGpu(const Trace& trace) {
  std::vector<int8_t> known(trace.name_count(), -1);
  std::string signs;
  size_t shown = 0;
  const auto look = [&](const auto& rows) {
    for (const auto& row : rows) {
      if (known[row.name] >= 0 || shown == kShown) continue;
      known[row.name] = IsSignOfGpu(trace.name(row.name));
      if (!known[row.name]) continue;
      signs += (signs.empty() ? "" : ", ") + std::string(trace.name(row.name));
      ++shown;
    }
  };
  look(trace.ops());
  look(trace.ranges());
  return signs;
}

int64_t ActivitiesLaunchedBefore(const Trace& trace, int32_t device) {
  // By stream: the begin of its first activity with a recorded launch.
  std::map<int64_t, int64_t> first_launched;
  const auto each = [&](const auto& visit) {
    const auto rows = [&](const auto& table) {
      for (const DeviceWork& work : table) {
        if (work.device == device) visit(work);
      }
    };
    rows(trace.kernels());
    rows(trace.copies());
    rows(trace.memsets());
  };
  each([&](const DeviceWork& work) {
    auto [it, added] = first_launched.emplace(
        work.stream, std::numeric_limits<int64_t>::max());
    if (work.call != kNone) it->second = std::min(it->second, work.begin_ns);
  });
  // Activities of a stream without any recorded launch count if they run before
  // the first launched activity of all other streams.
  int64_t first_of_all = std::numeric_limits<int64_t>::min();
  for (const auto& [stream, ns] : first_launched) {
    if (ns == std::numeric_limits<int64_t>::max()) continue;
    first_of_all = first_of_all == std::numeric_limits<int64_t>::min()
                       ? ns
                       : std::min(first_of_all, ns);
  }
  int64_t count = 0;
  each([&](const DeviceWork& work) {
    const int64_t first = first_launched[work.stream];
    const bool none = first == std::numeric_limits<int64_t>::max();
    count +=
        work.call == kNone && work.begin_ns < (none ? first_of_all : first);
  });
  return count;
}

}  // namespace stepscope
