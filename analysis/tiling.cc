#include "tiling.h"

#include <algorithm>
#include <limits>

namespace stepscope {
namespace {

// Work that starts later than this behind its launch waited for the device.
constexpr int64_t kQueuedNs = 10'000;

// Device work from before the first step, where it was recorded: it began
// before anything of the first step's own, and its launch is out of sight.
int64_t EarlierWorkEnd(const Trace& trace, int64_t host_begin_ns,
                       int64_t first_work_ns) {
  int64_t end = host_begin_ns;
  const auto note = [&](const DeviceWork& work) {
    if (work.begin_ns >= first_work_ns) return;
    if (work.call != kNone &&
        trace.runtime_calls()[work.call].begin_ns >= host_begin_ns) {
      return;
    }
    end = std::max(end, std::min(work.end_ns, first_work_ns));
  };
  for (const Kernel& work : trace.kernels()) note(work);
  for (const Copy& work : trace.copies()) note(work);
  for (const Memset& work : trace.memsets()) note(work);
  return end;
}

// The first work launched inside the first step.
struct FirstWork {
  int64_t begin_ns = std::numeric_limits<int64_t>::max();
  int64_t launched_ns = std::numeric_limits<int64_t>::max();
};

// When the device turned to the first step: behind what is recorded of the step
// before; else as far behind the host as in the other steps. Where that reaches
// beyond the first launch, the first work tells whether it had to queue.
int64_t FirstTileBegin(const Trace& trace,
                       const std::vector<StepWindow>& windows,
                       const std::vector<int64_t>& last_work_ns,
                       const FirstWork& first) {
  const int64_t begin = windows[0].host.begin_ns;
  if (last_work_ns[0] == 0) return begin;
  const int64_t earlier = EarlierWorkEnd(trace, begin, first.begin_ns);
  if (earlier > begin) return earlier;
  std::vector<double> tails;
  for (size_t i = 0; i < windows.size(); ++i) {
    if (last_work_ns[i] == 0) continue;
    tails.push_back(
        std::max<int64_t>(last_work_ns[i] - windows[i].host.end_ns, 0));
  }
  const int64_t behind = begin + static_cast<int64_t>(Median(std::move(tails)));
  if (behind < first.launched_ns) return behind;
  const bool queued = first.begin_ns - first.launched_ns > kQueuedNs;
  return std::max(begin, queued ? first.begin_ns : first.launched_ns);
}

}  // namespace

void Tile(const Trace& trace, std::vector<StepWindow>& windows) {
  if (windows.empty()) return;
  std::vector<int64_t> last(windows.size());
  FirstWork first;
  const auto note = [&](const DeviceWork& work) {
    if (work.call == kNone) return;
    const int64_t launched = trace.runtime_calls()[work.call].begin_ns;
    const auto after = std::ranges::upper_bound(
        windows, launched, {},
        [](const StepWindow& w) { return w.host.begin_ns; });
    if (after == windows.begin()) return;
    const size_t index = static_cast<size_t>(after - windows.begin()) - 1;
    if (launched < windows[index].host.end_ns) {
      last[index] = std::max(last[index], work.end_ns);
      if (index == 0 && work.begin_ns < first.begin_ns) {
        first = {work.begin_ns, launched};
      }
    }
  };
  for (const Kernel& work : trace.kernels()) note(work);
  for (const Copy& work : trace.copies()) note(work);
  for (const Memset& work : trace.memsets()) note(work);
  for (size_t i = 0; i < windows.size(); ++i) {
    StepWindow& window = windows[i];
    window.tiled = {window.host.begin_ns,
                    std::max(window.host.end_ns, last[i])};
    if (i == 0 || !trace.has_device_work()) continue;
    window.tiled.begin_ns = windows[i - 1].tiled.end_ns;
    window.tiled.end_ns = std::max(window.tiled.end_ns, window.tiled.begin_ns);
  }
  if (trace.has_device_work()) {
    windows[0].tiled.begin_ns = std::min(
        FirstTileBegin(trace, windows, last, first), windows[0].tiled.end_ns);
  }
}

}  // namespace stepscope
