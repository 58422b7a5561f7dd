// StallRecorder: records the next occurrence of a recurring stall, so that the
// report of the run can name its cause. Most stalls fall outside the few steps
// that the schedule records.
//
// The background thread chooses the step to record (Plan()). The training
// thread opens a window of six steps around it: two warm-up steps, two steps
// before the stall, the stall, and one step after it. If a window shows no slow
// step, the same kind of stall is tried again, three times in total.
#pragma once

#include <stepscope/report.h>
#include <stepscope/session.h>
#include <stepscope/trace.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace stepscope {

class StallRecorder {
 public:
  // `make` returns the options of a new session: collectors, buffers, names.
  explicit StallRecorder(std::function<Session::Options()> make)
      : make_(std::move(make)) {}

  // Called on the training thread:

  // True if EndStep() has something to do before step `next` begins.
  bool IsDue(int64_t next) const noexcept {
    return session_ != nullptr ||
           next == begin_.load(std::memory_order_relaxed);
  }
  bool recording() const { return session_ != nullptr; }
  // The step before number `next` has ended. Returns the window if this step
  // closed it. REQUIRES: IsDue(next).
  std::unique_ptr<ClosedWindow> EndStep(int64_t next);
  // The loop has ended: discards an open window.
  void Drop() { session_.reset(); }

  // Called on the background thread:

  // Chooses what to record next, unless something is chosen already. `next` is
  // the number of the first step that has not ended.
  void Plan(const WholeRun& run, int64_t next);
  // Reads the cause of the stall from its window.
  void Take(const Trace& trace, const Report& report);
  // The window was lost or processed, so another one may follow.
  void Release() noexcept { busy_.store(false, std::memory_order_release); }
  // Adds the known causes to the stalls of `run`.
  void Explain(WholeRun& run) const;

 private:
  // A kind of stall: it occurs in the steps whose number modulo `period` is
  // `phase`.
  struct Kind {
    int64_t period = 0;
    int64_t phase = 0;
    int tries = 0;
    int64_t step = -1;  // the recorded step
    std::string cause = {};
  };

  const std::function<Session::Options()> make_;
  std::unique_ptr<Session> session_;
  std::atomic<int64_t> begin_{-1};  // the step that opens the window; -1: none
  std::atomic<bool> busy_{false};   // a window is open or being analysed
  int64_t target_ = -1;             // the step that should stall
  std::vector<Kind> kinds_;
};

}  // namespace stepscope
