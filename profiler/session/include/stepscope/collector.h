// Collector: one source of events (LibTorch's operators, CUPTI, settings, the
// host). A collector is only on or off. Wait, warm-up and active steps are
// known to the Session alone.
//
// The Session makes all calls on the thread that drives it (the training
// thread), in this order: Arm() until the first Start(), Start(), OnStep()
// after each step, OnSampleStep() before one of the steps, Stop(). The next
// cycle begins with Start() again. A collector whose Start() failed gets no
// further call in that cycle. Hooks that a collector installs may run on any
// thread. In a forked child the Session makes no calls, and hooks must record
// nothing.
//
// This interface may change in any version (docs/stability.md).
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string_view>

namespace stepscope {

class ClockMap;
class TraceBuilder;
struct SlotLog;

// What one collector recorded in one window, not yet decoded. It needs neither
// hooks nor an open window.
class Recording {
 public:
  virtual ~Recording() = default;

  // Decodes everything into rows, calls Watch() for the kinds that were
  // recorded, and adds a Loss for everything that is missing. `slots` has the
  // records of all hooks in the event buffers; a collector that writes there
  // picks out its own ones (stepscope/slot_walk.h). Called once, on a
  // background thread, while training goes on.
  virtual void AddTo(TraceBuilder& builder, const ClockMap& clock,
                     const SlotLog& slots) = 0;
};

class Collector {
 public:
  virtual ~Collector() = default;

  // Short and stable, for messages and losses: "torch", "settings".
  virtual std::string_view name() const = 0;

  // Called when the Session starts, and after each step before its first
  // window. From here on a collector may listen for facts about the time before
  // the window, provided that this does not slow the program down.
  virtual void Arm() {}

  // Installs the hooks. The event buffers are open. An error says why this
  // source cannot be recorded and what to do about it. The Session then records
  // the other sources and puts the message into the Trace. Unavailable means
  // that the source does not exist here.
  virtual absl::Status Start() = 0;

  // The step that begins now is this window's step for expensive measurements,
  // which take too long to make in every step. It is the last warm-up step, or
  // the first active step if there is no warm-up. OnStep() ends it.
  // `is_recorded`: it is an active step.
  virtual void OnSampleStep(bool is_recorded) { (void)is_recorded; }

  // A step has ended on the calling thread. `step` is its number, from 0;
  // `now_ns` is its end, since the epoch. Also called in warm-up steps. Must be
  // cheap, because it runs inside the training loop.
  virtual void OnStep(int64_t step, int64_t now_ns) = 0;

  // The time between Pause() and Resume() belongs to no step, and events in it
  // should not be recorded. A source may ignore both calls: its rows then lie
  // outside the steps. The two calls alternate, both inside the training loop.
  virtual void Pause() {}
  virtual void Resume() {}

  // Removes the hooks and returns what they recorded. No hook may start a
  // record afterwards, but the end of an operator that is still running may be
  // written until the event buffers close. Must not decode, because the
  // training thread waits for it. Also called while paused.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Stop() = 0;
};

}  // namespace stepscope
