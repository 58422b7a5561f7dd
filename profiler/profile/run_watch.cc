#include "run_watch.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stepscope {
namespace {

constexpr size_t kMostLines = 16384;  // 512 KB
// The age that a line may have, at most, when it is written (approximately).
constexpr int64_t kAskEveryNs = 1'000'000'000;

}  // namespace

RunWatch::RunWatch(const Options& options)
    : keep_lines_(options.keep_lines),
      status_every_ns_(
          options.status_every.count() > 0
              // Due() is called only once a second, so a shorter interval has
              // no effect.
              ? std::max<int64_t>(options.status_every.count() * 1'000'000,
                                  kAskEveryNs)
              : 0),
      look_for_stalls_(options.look_for_stalls),
      begin_(ReadClock()),
      timer_(options.first_step),
      next_status_ns_(begin_.monotonic_ns + status_every_ns_) {
  if (keep_lines_) lines_.reserve(kMostLines);
  // Ask soon for the first time. The rate of the ticks is known only
  // afterwards.
  const bool asks = keep_lines_ || status_every_ns_ > 0 || look_for_stalls_;
  due_ = asks ? begin_.ticks + 1'000'000 : std::numeric_limits<Ticks>::max();
}

void RunWatch::Keep(Ticks now, Ticks length, bool off) noexcept {
  // If the background thread is far behind, lines are dropped, so that the
  // training thread never waits and the vector never grows.
  if (lines_.size() == kMostLines) return;
  lines_.push_back({timer_.next_step() - 1, now, length, off});
  // Fetch the lines when the vector is half full. The other half is for the
  // steps until then.
  if (lines_.size() == kMostLines / 2) due_ = now;
}

RunWatch::Chores RunWatch::Due() {
  const ClockReading now = ReadClock();
  Chores chores;
  const double ns_per_tick = ClockMap(begin_, now).ns_per_tick();
  due_ = now.ticks + static_cast<Ticks>(kAskEveryNs / ns_per_tick);
  if (status_every_ns_ > 0 && now.monotonic_ns >= next_status_ns_) {
    chores.status = true;
    next_status_ns_ = now.monotonic_ns + status_every_ns_;
  }
  if (look_for_stalls_ && timer_.steps() >= next_look_) {
    chores.stalls = true;
    // Looks at 64, 80, 100, ... steps, so that the cost stays a small share of
    // the run.
    next_look_ = timer_.steps() + timer_.steps() / 4;
  }
  chores.lines = TakeLines(now);
  return chores;
}

std::vector<StepLine> RunWatch::TakeLines(const ClockReading& now) {
  // Ticks are converted to ns only here, because their rate is known better the
  // longer the run is.
  const ClockMap clock(begin_, now);
  std::vector<StepLine> lines;
  lines.reserve(lines_.size());
  for (const Raw& raw : lines_) {
    lines.push_back(
        {raw.number, clock.ToNs(raw.end),
         std::llround(static_cast<double>(raw.length) * clock.ns_per_tick()),
         raw.off});
  }
  lines_.clear();
  return lines;
}

}  // namespace stepscope
