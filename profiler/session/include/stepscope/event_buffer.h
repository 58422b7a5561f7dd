// EventBuffers: the memory that hooks record into. Every recording thread has
// its own list of chunks with 32-byte slots (stepscope/slot.h) and writes only
// there.
//
// Threads: a writer takes no lock, makes no system call except one mmap per
// chunk, and sets a flag of its own around each write. Close() closes the
// window, makes all processors see that, and waits until every flag is clear
// before it takes the chunks. A write is therefore either complete and
// recorded, or it never began. A thread may exit at any time; its chunks stay.
// A forked child has no open window and does not touch the parent's chunks.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <stepscope/event_recording.h>

#include <cstdint>
#include <memory>

namespace stepscope {

// The open window. A process has at most one.
class EventBuffers {
 public:
  struct Options {
    // For all threads together. When this limit is reached, new events are
    // dropped and counted in a Loss "buffer-full".
    int64_t max_buffer_bytes = int64_t{256} << 20;
  };

  // Opens the window, so that threads record from now on. FailedPrecondition if
  // a window is already open; InvalidArgument if max_buffer_bytes is smaller
  // than a chunk.
  static absl::StatusOr<std::unique_ptr<EventBuffers>> Open(
      const Options& options);

  // Closes the window and discards its events, unless Close() was called.
  ~EventBuffers();
  EventBuffers(const EventBuffers&) = delete;
  EventBuffers& operator=(const EventBuffers&) = delete;

  // Closes the window and returns what was recorded, not yet decoded. Waits for
  // writes in progress, which take well under a microsecond each. Any thread
  // may call it. Throws std::bad_alloc if memory runs out; the window then
  // stays open. REQUIRES: it has not succeeded before.
  std::unique_ptr<EventRecording> Close();

 private:
  struct Window;
  explicit EventBuffers(std::unique_ptr<Window> window);
  std::unique_ptr<Window> window_;
};

}  // namespace stepscope
