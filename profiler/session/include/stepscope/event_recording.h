// EventRecording: the slots of a closed window, and the memory they lie in,
// until everybody has decoded theirs.
//
// Filled under the registry's lock; from then on it belongs to whoever decodes
// it, on any one thread.
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
  // Takes the thread's chunks, open operators and counters.
  void TakeThread(const RegisteredLog& log);
  // Takes chunks nobody used, to unmap them later.
  void TakeUnused(std::pair<Chunk*, size_t> chunks) { unused_ = chunks; }

  // For those that decode records of their own. Valid while this lives.
  const SlotLog& slots() const { return slots_; }

  // Adds what is the session's own: ranges, names of threads, and what the
  // buffers lost. After the collectors, which may know better names.
  void AddTo(TraceBuilder& builder, const ClockMap& clock) const;

 private:
  SlotLog slots_;
  std::vector<Chunk*> last_chunks_;
  std::pair<Chunk*, size_t> unused_{nullptr, 0};
  int64_t max_bytes_ = 0;
  int64_t dropped_ = 0;
  int64_t cut_ = 0;
};

}  // namespace stepscope
