// Session: switches collectors on and off by a schedule.
//
// A cycle: during the wait steps all collectors are off and the steps are
// timed. At the first warm-up step the event buffers open and the collectors
// start. After the last active step the collectors stop, the buffers close, and
// the caller gets a ClosedWindow, which a background thread turns into a Trace.
// A collector that cannot start is left out of the cycle, and the Trace
// contains the reason as a Loss.
//
// One thread, the training thread, drives a Session. Only one Session of a
// process at a time may have cycles left. In a forked child all calls do
// nothing. The collectors are destroyed after the last cycle, even if the
// Session lives on.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <stepscope/collector.h>
#include <stepscope/event_buffer.h>
#include <stepscope/loaders.h>
#include <stepscope/schedule.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace stepscope {

// What one window recorded, not yet decoded. Any thread may build it.
class ClosedWindow {
 public:
  ClosedWindow();
  ~ClosedWindow();

  // Decodes, sorts and links the rows and clips them to the active steps. `run`
  // has the caller's facts about the run; the window's own facts are added. A
  // collector that fails to decode adds a Loss instead of its rows. REQUIRES:
  // called at most once.
  Trace Build(RunInfo run);

  int64_t cycle() const { return cycle_; }
  // The number of active steps that ended inside the window.
  int64_t steps() const { return static_cast<int64_t>(steps_.size()); }

 private:
  friend class Session;
  struct Mark {
    Ticks begin = 0;
    Ticks end = 0;
    int64_t number = 0;
  };
  void AddRecordings(TraceBuilder& builder, const ClockMap& clock);

  int64_t cycle_ = 0;
  int64_t pid_ = 0;
  int64_t tid_ = 0;
  ClockReading clock_begin_;
  ClockReading clock_end_;
  Ticks begin_ = 0;
  Ticks end_ = 0;
  std::vector<Mark> steps_;
  std::vector<int64_t> wait_step_ns_;
  std::unique_ptr<EventRecording> events_;  // null: there were no buffers
  std::vector<std::unique_ptr<Recording>> recordings_;  // last started first
  std::vector<LoaderFacts> loaders_;
  std::vector<Loss> losses_;
};

class Session {
 public:
  struct Options {
    std::string name;  // for messages
    Schedule schedule = {};
    EventBuffers::Options buffers = {};
    // The id of the training thread; 0: the thread that calls Step() when a
    // window opens. A Loss in the Trace says so if another thread made the
    // Session or calls Step().
    int64_t training_tid = 0;
    int64_t first_step = 0;  // the number of the step that begins now
    // A step begins with BeginStep() instead of at the end of the previous
    // step. Between steps the collectors are paused.
    bool marked_steps = false;
    std::vector<std::unique_ptr<Collector>> collectors = {};
    // Called once for each different error, on the driving thread. May be
    // empty. A source that is Unavailable is not an error.
    std::function<void(const absl::Status&)> on_error = {};
  };

  // InvalidArgument for a schedule that records nothing or a negative
  // first_step. FailedPrecondition, with the other Session's name, if another
  // Session of this process has cycles left.
  static absl::StatusOr<std::unique_ptr<Session>> Make(Options options);

  // Stops recording and discards an open window. Call End() before to keep the
  // window.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // With marked_steps: a step begins. Otherwise does nothing.
  void BeginStep();

  // The current step has ended. Returns the window if that closed it, else
  // null. Does nothing after the last cycle. An exception (std::bad_alloc, or
  // whatever a collector threw) ends the Session without a window. The same
  // holds for End().
  std::unique_ptr<ClosedWindow> Step();

  // The loop has ended. Returns the open window, cut after its last complete
  // step, or at this moment if no step is complete. Returns null if no active
  // step has begun. The Session is done afterwards.
  std::unique_ptr<ClosedWindow> End();

  bool done() const { return done_; }
  // True from warm-up to the window's end, while the collectors are on.
  bool recording() const { return recording_; }
  // The number of steps that have ended.
  int64_t steps() const { return step_; }
  // True in a child of the process that made the Session.
  bool in_forked_child() const;

 private:
  class Claim;

  Session(Options options, std::unique_ptr<Claim> claim);
  void Arm();
  template <typename Call>
  auto OrAbandon(Call call);
  void Abandon() noexcept;
  std::unique_ptr<ClosedWindow> EndStep();
  std::unique_ptr<ClosedWindow> EndLoop();
  void CheckThread();
  void Enter();  // the phase of step_, which begins now
  void MarkBegin();
  bool IsSampleStep() const;
  void StartRecording();
  std::unique_ptr<ClosedWindow> CloseWindow();
  void StopCollectors(ClosedWindow* window);
  void DropRecording();
  void Finish();
  void ReportOnce(const absl::Status& error);

  Options options_;
  std::unique_ptr<Claim> claim_;
  uint64_t fork_count_ = 0;
  bool done_ = false;
  int64_t step_ = 0;  // the number of the current step
  SchedulePlace place_;
  Ticks step_begin_ = 0;
  int64_t step_begin_ns_ = 0;  // monotonic
  std::vector<int64_t> wait_step_ns_;
  std::vector<std::string> reported_;
  int64_t maker_tid_ = 0;   // of the thread that made the Session
  std::thread::id driver_;  // the thread that called Step() last

  // From warm-up to the window's end.
  bool recording_ = false;
  std::unique_ptr<EventBuffers> buffers_;
  std::vector<Collector*> started_;
  std::unique_ptr<ClosedWindow> window_;
};

}  // namespace stepscope
