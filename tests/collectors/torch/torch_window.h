// A window with the torch collector. Its Trace has what a test runs between the
// constructor and CloseAndBuild().
#pragma once

#include <gtest/gtest.h>
#include <stepscope/clock.h>
#include <stepscope/collectors.h>
#include <stepscope/event_buffer.h>
#include <stepscope/trace_builder.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace stepscope {

class TorchWindow {
 public:
  explicit TorchWindow(const TorchOptions& options = {})
      : collector_(MakeTorchCollector(options)), begin_(ReadClock()) {
    auto opened = EventBuffers::Open({.max_buffer_bytes = int64_t{64} << 20});
    EXPECT_TRUE(opened.ok()) << opened.status();
    buffers_ = *std::move(opened);
    const absl::Status started = collector_->Start();
    EXPECT_TRUE(started.ok()) << started;
  }

  Collector& collector() { return *collector_; }

  // Stops the hooks but keeps the buffers open.
  void Stop() {
    auto stopped = collector_->Stop();
    EXPECT_TRUE(stopped.ok()) << stopped.status();
    torch_ = *std::move(stopped);
  }

  Trace CloseAndBuild() {
    if (torch_ == nullptr) Stop();
    const auto events = buffers_->Close();
    const ClockMap clock(begin_, ReadClock());
    TraceBuilder builder;
    torch_->AddTo(builder, clock, events->slots());
    events->AddTo(builder, clock);
    return builder.Build();
  }

 private:
  std::unique_ptr<Collector> collector_;
  ClockReading begin_;
  std::unique_ptr<EventBuffers> buffers_;
  std::unique_ptr<Recording> torch_;
};

inline std::vector<const Op*> OpsNamed(const Trace& trace,
                                       std::string_view name) {
  std::vector<const Op*> ops;
  for (const Op& op : trace.ops()) {
    if (trace.name(op.name) == name) ops.push_back(&op);
  }
  return ops;
}

inline std::string_view ParentName(const Trace& trace, const Op& op) {
  return op.parent == kNone ? std::string_view()
                            : trace.name(trace.ops()[op.parent].name);
}

}  // namespace stepscope
