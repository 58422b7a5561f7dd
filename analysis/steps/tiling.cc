#include "steps/tiling.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stepscope {
namespace {

// Work that starts later than this behind its launch waited for the device.
constexpr int64_t kQueuedNs = 10'000;
// Steps are alike whose first launch differs by no more.
constexpr double kAlike = 0.2, kAlikeNs = 500'000;

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

// What a step launched.
struct StepWork {
  int64_t last_ns = 0;  // end of the last work
  int64_t begin_ns = std::numeric_limits<int64_t>::max();     // of the first
  int64_t launched_ns = std::numeric_limits<int64_t>::max();  // the same
  bool any() const { return last_ns > 0; }
};

// How far the device was behind the host when the first step began: as far as
// before steps like it. Alike are steps that take as long to launch something,
// which tells those that wait for a batch from the rest.
double UsualLag(const std::vector<StepWindow>& windows,
                const std::vector<StepWork>& work) {
  const auto lag_behind = [&](size_t i) -> double {
    return std::max<int64_t>(work[i].last_ns - windows[i].host.end_ns, 0);
  };
  const auto lead = [&](size_t i) -> double {
    return work[i].launched_ns - windows[i].host.begin_ns;
  };
  double nearest = std::numeric_limits<double>::max();
  for (size_t i = 1; i < windows.size(); ++i) {
    if (work[i].any() && work[i - 1].any()) {
      nearest = std::min(nearest, std::abs(lead(i) - lead(0)));
    }
  }
  const double alike = std::max({nearest, kAlike * lead(0), kAlikeNs});
  std::vector<double> lags;
  for (size_t i = 1; i < windows.size(); ++i) {
    if (work[i].any() && work[i - 1].any() &&
        std::abs(lead(i) - lead(0)) <= alike) {
      lags.push_back(lag_behind(i - 1));
    }
  }
  return lags.empty() ? lag_behind(0) : Median(std::move(lags));
}

// When the device turned to the first step: behind what is recorded of the step
// before; else as far behind the host as it usually is. Where that reaches
// beyond the first launch, the first work tells whether it had to queue.
int64_t FirstTileBegin(const Trace& trace,
                       const std::vector<StepWindow>& windows,
                       const std::vector<StepWork>& work) {
  const int64_t begin = windows[0].host.begin_ns;
  const StepWork& first = work[0];
  if (!first.any()) return begin;
  const int64_t earlier = EarlierWorkEnd(trace, begin, first.begin_ns);
  if (earlier > begin) return earlier;
  const int64_t behind = begin + static_cast<int64_t>(UsualLag(windows, work));
  if (behind < first.launched_ns) return behind;
  const bool queued = first.begin_ns - first.launched_ns > kQueuedNs;
  return std::max(begin, queued ? first.begin_ns : first.launched_ns);
}

}  // namespace

void Tile(const Trace& trace, std::vector<StepWindow>& windows) {
  if (windows.empty()) return;
  std::vector<StepWork> steps(windows.size());
  const auto note = [&](const DeviceWork& work) {
    if (work.call == kNone) return;
    const int64_t launched = trace.runtime_calls()[work.call].begin_ns;
    const auto after = std::ranges::upper_bound(
        windows, launched, {},
        [](const StepWindow& w) { return w.host.begin_ns; });
    if (after == windows.begin()) return;
    const size_t index = static_cast<size_t>(after - windows.begin()) - 1;
    if (launched < windows[index].host.end_ns) {
      StepWork& step = steps[index];
      step.last_ns = std::max(step.last_ns, work.end_ns);
      if (work.begin_ns < step.begin_ns) {
        step.begin_ns = work.begin_ns;
        step.launched_ns = launched;
      }
    }
  };
  for (const Kernel& work : trace.kernels()) note(work);
  for (const Copy& work : trace.copies()) note(work);
  for (const Memset& work : trace.memsets()) note(work);
  for (size_t i = 0; i < windows.size(); ++i) {
    StepWindow& window = windows[i];
    window.tiled = {window.host.begin_ns,
                    std::max(window.host.end_ns, steps[i].last_ns)};
    if (i == 0 || !trace.has_device_work()) continue;
    window.tiled.begin_ns = windows[i - 1].tiled.end_ns;
    window.tiled.end_ns = std::max(window.tiled.end_ns, window.tiled.begin_ns);
  }
  if (trace.has_device_work()) {
    windows[0].tiled.begin_ns = std::min(FirstTileBegin(trace, windows, steps),
                                         windows[0].tiled.end_ns);
  }
}

}  // namespace stepscope
