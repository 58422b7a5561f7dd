// EventBuffers: the memory that hooks record into. Every recording thread owns
// a list of chunks of 32-byte slots (stepscope/slot.h) and writes nowhere else.
//
// Threads: a writer takes no lock, makes no system call except one mmap per
// chunk, and sets a flag of its own around each write. Close() closes the
// window, makes all processors see that, and waits until every flag is clear
// before it takes the chunks: a write is either complete and recorded, or never
// began. A thread may exit at any time; its chunks stay. In a forked child the
// window is closed, and the parent's chunks are not touched.
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
    // For all threads together. When it is used up, new events are dropped and
    // counted in a Loss "buffer-full".
    int64_t max_buffer_bytes = int64_t{256} << 20;
  };

  // Opens the window: from now on, threads record. FailedPrecondition if one is
  // open already; InvalidArgument if max_buffer_bytes holds no chunk.
  static absl::StatusOr<std::unique_ptr<EventBuffers>> Open(
      const Options& options);

  // Closes the window and discards what it holds, unless Close() was called.
  ~EventBuffers();
  EventBuffers(const EventBuffers&) = delete;
  EventBuffers& operator=(const EventBuffers&) = delete;

  // Closes the window and returns what was recorded, not yet decoded. Waits for
  // writes in progress, well under a microsecond each. Any thread may call it.
  // Throws std::bad_alloc if memory runs out: the window is still open then.
  // REQUIRES: called at most once with success.
  std::unique_ptr<EventRecording> Close();

 private:
  struct Window;
  explicit EventBuffers(std::unique_ptr<Window> window);
  std::unique_ptr<Window> window_;
};

}  // namespace stepscope
