// The event buffers: every thread that records owns a list of chunks of 32-byte
// slots (stepscope/slot.h) and writes to nothing else.
//
// Thread rules. A writer takes no lock, makes no system call but one mmap per
// chunk, and raises a flag of its own around each write. Close() shuts the
// window, makes all processors see that, waits until every flag is down, and
// only then takes the chunks: a write is either complete and in the recording,
// or was never begun. A thread may exit at any time; its chunks stay. In a
// forked child the window is closed and the parent's chunks are left alone.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <stepscope/event_recording.h>

#include <cstdint>
#include <memory>

namespace stepscope {

// The open window. At most one in a process.
class EventBuffers {
 public:
  struct Options {
    // All chunks of all threads together. When they are full, the newest events
    // are dropped and counted in a Loss "buffer-full".
    int64_t max_buffer_bytes = int64_t{256} << 20;
  };

  // Opens the window: from now on, threads record. FailedPrecondition if one is
  // open already; InvalidArgument if max_buffer_bytes holds no chunk.
  static absl::StatusOr<std::unique_ptr<EventBuffers>> Open(
      const Options& options);

  // Closes the window and throws away what it holds, unless Close() did.
  ~EventBuffers();
  EventBuffers(const EventBuffers&) = delete;
  EventBuffers& operator=(const EventBuffers&) = delete;

  // Closes the window and hands over what was recorded; waits for writes under
  // way (well under a microsecond each), decodes nothing. Any thread may call
  // it. REQUIRES: called at most once.
  std::unique_ptr<EventRecording> Close();

 private:
  struct Window;
  explicit EventBuffers(std::unique_ptr<Window> window);
  std::unique_ptr<Window> window_;
};

}  // namespace stepscope
