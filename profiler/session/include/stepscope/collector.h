// Collector: one source of events (LibTorch, CUPTI, the settings, the host). It
// is on or off; only the Session knows wait, warm-up and active.
//
// The Session makes one call sequence, all from the thread that drives it (the
// training thread): Start(), OnStep() once per step, Stop(); then perhaps again
// for the next cycle. A collector whose Start() failed gets no other call in
// that cycle. Hooks a collector installed may run on any thread. In a forked
// child none of this is called, and hooks must write nothing.
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

// What one collector recorded in one window, not yet decoded. It holds no hook
// and refers to no open window.
class Recording {
 public:
  virtual ~Recording() = default;

  // Decodes everything into rows, Watch()es the kinds that were looked at, and
  // adds a Loss for whatever is missing. `slots` is what all threads wrote into
  // the event buffers in this window: a collector whose hooks write there finds
  // its own records among those of others (stepscope/slot_walk.h). Called once,
  // on a background thread; the training thread is running again by then.
  virtual void AddTo(TraceBuilder& builder, const ClockMap& clock,
                     const SlotLog& slots) = 0;
};

class Collector {
 public:
  virtual ~Collector() = default;

  // Short and stable, as messages and losses name it: "torch", "settings".
  virtual std::string_view name() const = 0;

  // Installs the hooks. The event buffers are open by then. An error says why
  // this source cannot be recorded and what to do; the Session goes on without
  // it and puts the message into the Trace.
  virtual absl::Status Start() = 0;

  // A step has ended on the calling thread; `step` is its number, as the loop
  // counts from 0, and `now_ns` the end of its window since the epoch. Called
  // between Start() and Stop(), in warm-up steps too. Must be cheap: it is
  // inside the user's loop.
  virtual void OnStep(int64_t step, int64_t now_ns) = 0;

  // Removes the hooks and hands over what they recorded. After it returned, no
  // hook begins a new record; the end of an operator that was running may still
  // be filled in, until the event buffers close. Must not decode: the training
  // thread waits for it.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Stop() = 0;
};

}  // namespace stepscope
