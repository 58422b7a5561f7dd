// ThreadRegistry: all threads that have recorded and not yet exited, and the
// window that they record into. The slow half of the event buffers.
//
// There is one registry per process, because hooks have no user pointer. It is
// never destroyed, because threads may record until the process ends. A forked
// child starts with only the forking thread and without a window.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/event_recording.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "event_chunks.h"
#include "registered_log.h"

namespace stepscope {

class ThreadRegistry {
 public:
  static ThreadRegistry& Get();

  // FailedPrecondition if a window is open.
  absl::StatusOr<uint64_t> Open(int64_t max_bytes);
  // Returns an empty recording if `number` is no longer the open window, as in
  // a forked child. Waits for threads that are inside a write: well under a
  // microsecond for a thread that has a core, and at most kMostWriteWait. If a
  // thread takes longer, its records are lost, and the recording says so.
  // Throws std::bad_alloc, and leaves the window open, if memory runs out.
  std::unique_ptr<EventRecording> Close(uint64_t number);
  // Closes the window and discards its records. Needs no memory. Each thread
  // frees its chunks at its next event or when it exits.
  void Discard(uint64_t number) noexcept;

  // Called by the thread itself.
  ThreadLog* Register() noexcept;  // null if memory has run out
  void ThreadExits(RegisteredLog* log) noexcept;

  // Returns a chunk, or null if the window's limit is reached or the system has
  // no memory. Called from any thread, without a lock.
  Chunk* TakeChunk() noexcept;

 private:
  ThreadRegistry();
  // Closes the window to writers. Fills `writing` with the logs whose threads
  // are still inside a write after kMostWriteWait. REQUIRES: `writing` has room
  // for all logs.
  void WaitUntilQuiet(std::vector<RegisteredLog*>& writing) noexcept;
  static void BeforeFork();
  static void AfterForkInParent();
  static void AfterForkInChild();

  std::mutex mutex_;
  std::vector<RegisteredLog*> logs_;
  uint64_t open_ = 0;    // the open window, 0 if none
  uint64_t opened_ = 0;  // windows so far
  bool has_membarrier_ = false;
  int64_t max_bytes_ = 0;
  std::atomic<int64_t> bytes_left_{0};
  ReadyChunks ready_;
};

}  // namespace stepscope
