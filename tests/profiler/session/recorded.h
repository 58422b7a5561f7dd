// Closes a window and builds its Trace, with operators as the torch collector
// writes them.
#pragma once

#include <gtest/gtest.h>
#include <stepscope/clock.h>
#include <stepscope/event_buffer.h>
#include <stepscope/range.h>
#include <stepscope/trace_builder.h>

#include <memory>
#include <string>
#include <utility>

#include "torch_decode.h"
#include "torch_slots.h"

namespace stepscope {

class RecordedWindow {
 public:
  explicit RecordedWindow(int64_t max_buffer_bytes = int64_t{64} << 20) {
    begin_ = ReadClock();
    auto opened = EventBuffers::Open({.max_buffer_bytes = max_buffer_bytes});
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) buffers_ = *std::move(opened);
  }

  std::unique_ptr<EventRecording> Close() { return buffers_->Close(); }

  Trace Build(const EventRecording& recording) {
    TraceBuilder builder;
    const ClockMap clock(begin_, ReadClock());
    const TorchDecodeResult decoded =
        DecodeTorch(recording.slots(), clock, {}, builder);
    EXPECT_EQ(decoded.bad_records, 0);
    recording.AddTo(builder, clock);
    return builder.Build();
  }

  Trace CloseAndBuild() { return Build(*Close()); }

 private:
  ClockReading begin_;
  std::unique_ptr<EventBuffers> buffers_;
};

inline const Loss* FindLoss(const Trace& trace, std::string_view name) {
  for (const Loss& loss : trace.losses()) {
    if (loss.name == name) return &loss;
  }
  return nullptr;
}

}  // namespace stepscope
