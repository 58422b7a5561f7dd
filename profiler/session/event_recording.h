// EventRecording: the chunks of a closed window, until they are decoded.
//
// Filled under the registry's lock; from then on it belongs to whoever decodes
// it, on any one thread.
#pragma once

#include <stepscope/collector.h>
#include <stepscope/slot_decode.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "thread_registry.h"

namespace stepscope {

class EventRecording : public Recording {
 public:
  EventRecording() = default;
  ~EventRecording() override;
  EventRecording(const EventRecording&) = delete;
  EventRecording& operator=(const EventRecording&) = delete;

  void SetClosed(int64_t pid, Ticks closed, int64_t max_bytes,
                 Symbolizer symbolize, std::vector<SlotDecoder> decoders);
  // Takes the thread's chunks, open operators and counters.
  void TakeThread(const RegisteredLog& log);
  // Takes chunks nobody used, to unmap them later.
  void TakeUnused(std::pair<Chunk*, size_t> chunks) { unused_ = chunks; }

  void AddTo(TraceBuilder& builder, const ClockMap& clock) override;

 private:
  void AddLosses(const DecodeResult& decoded, TraceBuilder& builder) const;

  SlotLog log_;
  std::vector<Chunk*> last_chunks_;
  std::pair<Chunk*, size_t> unused_{nullptr, 0};
  Symbolizer symbolize_;
  std::vector<SlotDecoder> decoders_;
  int64_t max_bytes_ = 0;
  int64_t dropped_ = 0;
  int64_t cut_ = 0;
  int64_t unsampled_ = 0;
};

}  // namespace stepscope
