#include "steps/tiling.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stepscope {
namespace {

// An activity that starts more than 10 us after its launch had to wait for the
// device; launching on an idle device takes about 5 us.
constexpr int64_t kQueuedNs = 10'000;
// Two steps are alike if the times from their start to their first launch
// differ by at most 20 % or 0.5 ms, whichever is more. Our own choice: a step
// that waits for a batch differs by more from one that does not.
constexpr double kAlikeFrac = 0.2, kAlikeNs = 500'000;

// Gaps of more than this share of a step belong to no step. They occur if
// single steps are marked (ProfileOptions::marked_steps); the marks of a whole
// loop leave gaps of only some us.
constexpr double kApartFrac = 0.05;
bool IsApart(const StepWindow& before, const StepWindow& step) {
  const auto gap = static_cast<double>(step.host.begin_ns - before.host.end_ns);
  return gap > kApartFrac * static_cast<double>(step.host.length());
}

// Returns the end of the last activity that belongs to an earlier step, or
// host_begin_ns if there is none. The recording may start while the device
// still works on the step before the first recorded one. Such activities were
// launched before the step, or they have no recorded launch and start before
// the step's first activity.
int64_t EarlierActivityEnd(const Trace& trace, int64_t host_begin_ns,
                           int64_t first_activity_ns) {
  int64_t end = host_begin_ns;
  const auto note = [&](const DeviceWork& activity) {
    if (activity.call == kNone) {
      if (activity.begin_ns >= first_activity_ns) return;
      end = std::max(end, std::min(activity.end_ns, first_activity_ns));
    } else if (trace.runtime_calls()[activity.call].begin_ns < host_begin_ns) {
      // The step may already be copying or communicating on another stream.
      end = std::max(end, activity.end_ns);
    }
  };
  for (const Kernel& activity : trace.kernels()) note(activity);
  for (const Copy& activity : trace.copies()) note(activity);
  for (const Memset& activity : trace.memsets()) note(activity);
  return end;
}

// The activities that a step launched.
struct StepActivities {
  int64_t last_ns = 0;  // end of the last activity
  int64_t begin_ns = std::numeric_limits<int64_t>::max();     // of the first
  int64_t launched_ns = std::numeric_limits<int64_t>::max();  // its launch
  bool any() const { return last_ns > 0; }
};

// Estimates how far the device was behind the host when the first step started,
// in ns: the median over the steps that are like the first one. Two steps are
// compared by the time until they first launch something, because the device
// catches up while the host waits for a batch.
double UsualLag(const std::vector<StepWindow>& windows,
                const std::vector<StepActivities>& by_step) {
  const auto lag_behind = [&](size_t i) -> double {
    return std::max<int64_t>(by_step[i].last_ns - windows[i].host.end_ns, 0);
  };
  const auto lead = [&](size_t i) -> double {
    return by_step[i].launched_ns - windows[i].host.begin_ns;
  };
  double nearest = std::numeric_limits<double>::max();
  for (size_t i = 1; i < windows.size(); ++i) {
    if (by_step[i].any() && by_step[i - 1].any()) {
      nearest = std::min(nearest, std::abs(lead(i) - lead(0)));
    }
  }
  const double alike = std::max({nearest, kAlikeFrac * lead(0), kAlikeNs});
  std::vector<double> lags;
  for (size_t i = 1; i < windows.size(); ++i) {
    if (by_step[i].any() && by_step[i - 1].any() &&
        std::abs(lead(i) - lead(0)) <= alike) {
      lags.push_back(lag_behind(i - 1));
    }
  }
  return lags.empty() ? lag_behind(0) : Median(std::move(lags));
}

// Returns when the device started on the first step. If activities of the step
// before were recorded, that is their end; otherwise the device is taken to lag
// behind the host as usual. If that would be after the first launch, the device
// started when the first activity did if it had to queue, else at its launch.
int64_t FirstTileBegin(const Trace& trace,
                       const std::vector<StepWindow>& windows,
                       const std::vector<StepActivities>& by_step) {
  const int64_t begin = windows[0].host.begin_ns;
  const StepActivities& first = by_step[0];
  if (!first.any()) return begin;
  const int64_t earlier = EarlierActivityEnd(trace, begin, first.begin_ns);
  if (earlier > begin) return earlier;
  const int64_t behind =
      begin + static_cast<int64_t>(UsualLag(windows, by_step));
  if (behind < first.launched_ns) return behind;
  const bool queued = first.begin_ns - first.launched_ns > kQueuedNs;
  return std::max(begin, queued ? first.begin_ns : first.launched_ns);
}

// If no launch was recorded, and the device works on after the last step, then
// nothing shows which step an activity belongs to: divides the time in which
// the device works equally. False otherwise.
bool DivideEqually(const Trace& trace, std::vector<StepWindow>& windows) {
  Span busy{std::numeric_limits<int64_t>::max(), 0};
  bool launched = false;
  const auto note = [&](const auto& rows) {
    for (const DeviceWork& activity : rows) {
      launched |= activity.call != kNone;
      busy.begin_ns = std::min(busy.begin_ns, activity.begin_ns);
      busy.end_ns = std::max(busy.end_ns, activity.end_ns);
    }
  };
  note(trace.kernels());
  note(trace.copies());
  note(trace.memsets());
  const Span host{windows.front().host.begin_ns, windows.back().host.end_ns};
  const auto behind = static_cast<double>(busy.end_ns - host.end_ns);
  if (launched || behind <= kApartFrac * static_cast<double>(host.length())) {
    return false;
  }
  const int64_t begin = std::max(busy.begin_ns, host.begin_ns);
  const double step = static_cast<double>(busy.end_ns - begin) /
                      static_cast<double>(windows.size());
  for (size_t i = 0; i < windows.size(); ++i) {
    const auto at = [&](size_t count) {
      return begin + static_cast<int64_t>(step * static_cast<double>(count));
    };
    windows[i].tiled = {at(i), at(i + 1)};
  }
  return true;
}

}  // namespace

// Each activity belongs to the step that launched it, whenever it ran.
void FillTiledSpans(const Trace& trace, std::vector<StepWindow>& windows) {
  if (windows.empty() || DivideEqually(trace, windows)) return;
  std::vector<StepActivities> steps(windows.size());
  const auto note = [&](const DeviceWork& activity) {
    if (activity.call == kNone) return;
    const int64_t launched = trace.runtime_calls()[activity.call].begin_ns;
    const auto after = std::ranges::upper_bound(
        windows, launched, {},
        [](const StepWindow& w) { return w.host.begin_ns; });
    if (after == windows.begin()) return;
    const size_t index = static_cast<size_t>(after - windows.begin()) - 1;
    if (launched < windows[index].host.end_ns) {
      StepActivities& step = steps[index];
      step.last_ns = std::max(step.last_ns, activity.end_ns);
      if (activity.begin_ns < step.begin_ns) {
        step.begin_ns = activity.begin_ns;
        step.launched_ns = launched;
      }
    }
  };
  for (const Kernel& activity : trace.kernels()) note(activity);
  for (const Copy& activity : trace.copies()) note(activity);
  for (const Memset& activity : trace.memsets()) note(activity);
  for (size_t i = 0; i < windows.size(); ++i) {
    StepWindow& window = windows[i];
    window.tiled = {window.host.begin_ns,
                    std::max(window.host.end_ns, steps[i].last_ns)};
    // In a CPU-only run the host windows are the steps, because there is no
    // device that lags.
    if (i == 0 || !trace.has_device_work()) continue;
    window.tiled.begin_ns = windows[i - 1].tiled.end_ns;
    if (IsApart(windows[i - 1], window)) {
      window.tiled.begin_ns =
          std::max(window.tiled.begin_ns, window.host.begin_ns);
    }
    window.tiled.end_ns = std::max(window.tiled.end_ns, window.tiled.begin_ns);
  }
  if (trace.has_device_work()) {
    windows[0].tiled.begin_ns = std::min(FirstTileBegin(trace, windows, steps),
                                         windows[0].tiled.end_ns);
  }
}

}  // namespace stepscope
