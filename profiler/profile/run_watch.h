// RunWatch: the training thread's part of timing a whole run. It keeps the
// times of all steps and says when the background thread has something to do:
// write lines of JSON, print a status line, look for stalls.
#pragma once

#include <stepscope/step_timer.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace stepscope {

// One step, for a line of the file of step times.
struct StepLine {
  int64_t number = 0;
  int64_t end_ns = 0;  // since the epoch
  int64_t ns = 0;
  bool off = true;  // every collector was off
};

// Used by one thread at a time.
class RunWatch {
 public:
  struct Options {
    int64_t first_step = 0;  // the number of the step that begins now
    bool keep_lines = false;
    std::chrono::milliseconds status_every{0};  // 0: never
    bool look_for_stalls = false;
  };
  explicit RunWatch(const Options& options);

  // The current step has ended. `off`: every collector was off. Returns true if
  // something is due: then call Due().
  bool Step(bool off) noexcept {
    const Ticks now = NowTicks();
    const Ticks length = timer_.Add(now, off);
    if (keep_lines_) Keep(now, length, off);
    return now >= due_;
  }
  // Restarts the clock of the current step: it begins now.
  void Restart() noexcept { timer_.Restart(NowTicks()); }

  struct Chores {
    bool status = false;
    bool stalls = false;
    std::vector<StepLine> lines;
  };
  // Returns what is due, and sets the next time to ask.
  Chores Due();
  // At the end of the run: returns the remaining lines.
  std::vector<StepLine> Lines() { return TakeLines(ReadClock()); }

  int64_t next_step() const { return timer_.next_step(); }
  RunTimes Times() const { return timer_.Times(); }

 private:
  struct Raw {
    int64_t number;
    Ticks end;
    Ticks length;
    bool off;
  };
  void Keep(Ticks now, Ticks length, bool off) noexcept;
  std::vector<StepLine> TakeLines(const ClockReading& now);

  const bool keep_lines_;
  const int64_t status_every_ns_;
  const bool look_for_stalls_;
  const ClockReading begin_;
  StepTimer timer_;
  Ticks due_ = 0;
  int64_t next_status_ns_ = 0;  // monotonic
  // Looking for stalls takes far longer than a step, so it is done ever more
  // rarely.
  int64_t next_look_ = 64;
  std::vector<Raw> lines_;
};

}  // namespace stepscope
