// Collector: one source of events (LibTorch's operators, CUPTI, settings, the
// host). It is on or off; only the Session knows wait, warm-up and active
// steps.
//
// The Session calls, always on the thread that drives it (the training thread):
// Arm() until the first Start(), Start(), OnStep() after each step,
// OnSampleStep() before one of them, Stop(), and from Start() again in the next
// cycle. A collector whose Start() failed gets no further call in that cycle.
// Hooks that a collector installs may run on any thread. In a forked child none
// of this is called, and hooks must record nothing.
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

// What one collector recorded in one window, not yet decoded. It depends on no
// hook and no open window.
class Recording {
 public:
  virtual ~Recording() = default;

  // Decodes everything into rows, calls Watch() for the kinds that were
  // recorded, and adds a Loss for whatever is missing. `slots` holds what all
  // hooks wrote into the event buffers: a collector that writes there picks out
  // its own records (stepscope/slot_walk.h). Called once, on a background
  // thread, while training goes on.
  virtual void AddTo(TraceBuilder& builder, const ClockMap& clock,
                     const SlotLog& slots) = 0;
};

class Collector {
 public:
  virtual ~Collector() = default;

  // Short and stable, for messages and losses: "torch", "settings".
  virtual std::string_view name() const = 0;

  // The Session begins, or a step before its first window has ended. What has
  // to be known of the time before the window may be listened for from here on,
  // if the program does not pay for it.
  virtual void Arm() {}

  // Installs the hooks. The event buffers are open. An error says why this
  // source cannot be recorded and what to do; the Session records the other
  // sources and puts the message into the Trace. Unavailable: the source does
  // not exist here.
  virtual absl::Status Start() = 0;

  // The step that begins now is the one to look at closely: the last warm-up
  // step, or, without warm-up steps, the first active one. What takes too long
  // to be taken in every step is taken in this one, once per window; OnStep()
  // ends it. `is_recorded`: it is an active step.
  virtual void OnSampleStep(bool is_recorded) { (void)is_recorded; }

  // A step has ended on the calling thread. `step` is its number, from 0;
  // `now_ns` its end, since the epoch. Also called in warm-up steps. Must be
  // cheap: it runs inside the training loop.
  virtual void OnStep(int64_t step, int64_t now_ns) = 0;

  // Between Pause() and Resume() lies time that belongs to no step, and what
  // happens in it should not be recorded. A source may ignore them: its rows
  // then lie outside the steps. Called in turns, both inside the training loop.
  virtual void Pause() {}
  virtual void Resume() {}

  // Removes the hooks and returns what they recorded. Afterwards no hook begins
  // a record; the end of an operator that is still running may be written until
  // the event buffers close. Must not decode: the training thread waits for it.
  // Also called while paused.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Stop() = 0;
};

}  // namespace stepscope
