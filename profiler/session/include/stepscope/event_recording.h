// EventRecording: the slots of a closed window and their memory. It lives until
// every source has decoded its own records.
//
// EventBuffers::Close() fills it. Afterwards one thread at a time may use it.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/slot_walk.h>
#include <stepscope/trace_builder.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace stepscope {

struct Chunk;
struct RegisteredLog;

class EventRecording {
 public:
  EventRecording() = default;
  ~EventRecording();
  EventRecording(const EventRecording&) = delete;
  EventRecording& operator=(const EventRecording&) = delete;

  void SetClosed(int64_t pid, Ticks closed, int64_t max_bytes);
  // Sets how many threads were still inside a write. Nothing could be taken
  // from these threads.
  void SetUnfinished(int64_t threads) { unfinished_ = threads; }
  // Takes the thread's chunks, open operators and counters. If there is not
  // enough memory for that, the thread is counted as lost.
  void TakeThread(const RegisteredLog& log) noexcept;
  // Takes unused chunks, to unmap them later.
  void TakeUnused(std::pair<Chunk*, size_t> chunks) { unused_ = chunks; }

  // For the collectors, which decode their own records. Valid while this lives.
  const SlotLog& slots() const { return slots_; }

  // Adds the session's own rows: ranges, names of threads, and a Loss for what
  // the buffers dropped. Called after the collectors, because they may know
  // better names of threads.
  void AddTo(TraceBuilder& builder, const ClockMap& clock) const;

 private:
  SlotLog slots_;
  std::vector<Chunk*> last_chunks_;
  std::pair<Chunk*, size_t> unused_{nullptr, 0};
  int64_t max_bytes_ = 0;
  int64_t dropped_ = 0;
  int64_t cut_ = 0;
  int64_t unfinished_ = 0;
  int64_t lost_threads_ = 0;
};

}  // namespace stepscope
