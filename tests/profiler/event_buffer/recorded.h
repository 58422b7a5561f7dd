// What a test recorded: closes a window and builds its Trace.
#pragma once

#include <gtest/gtest.h>
#include <stepscope/clock.h>
#include <stepscope/event_buffer.h>
#include <stepscope/trace_builder.h>

#include <memory>
#include <string>
#include <utility>

namespace stepscope {

class RecordedWindow {
 public:
  explicit RecordedWindow(int64_t max_buffer_bytes = int64_t{64} << 20) {
    begin_ = ReadClock();
    auto opened = EventBuffers::Open({.max_buffer_bytes = max_buffer_bytes});
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) buffers_ = *std::move(opened);
  }

  std::unique_ptr<Recording> Close() { return buffers_->Close(); }

  Trace Build(Recording& recording) {
    TraceBuilder builder;
    recording.AddTo(builder, ClockMap(begin_, ReadClock()));
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
