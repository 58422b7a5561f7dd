// A window that records only NVTX, and its Trace as text.
#pragma once

#include <gtest/gtest.h>
#include <stepscope/collectors.h>
#include <stepscope/event_buffer.h>
#include <stepscope/trace.h>
#include <stepscope/trace_builder.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/losses.h"

namespace stepscope {

class NvtxWindow {
 public:
  explicit NvtxWindow(EventBuffers::Options options = {})
      : collector_(MakeNvtxCollector()), begin_(ReadClock()) {
    auto buffers = EventBuffers::Open(options);
    EXPECT_TRUE(buffers.ok());
    buffers_ = *std::move(buffers);
    started_ = collector_->Start();
    EXPECT_TRUE(started_.ok()) << started_.ToString();
  }

  // Closes the window.
  Trace Take() {
    const auto recording = collector_->Stop();
    EXPECT_TRUE(recording.ok());
    const auto events = buffers_->Close();
    TraceBuilder builder;
    const ClockMap clock(begin_, ReadClock());
    (*recording)->AddTo(builder, clock, events->slots());
    events->AddTo(builder, clock);
    return builder.Build();
  }

 private:
  std::unique_ptr<Collector> collector_;
  std::unique_ptr<EventBuffers> buffers_;
  ClockReading begin_;
  absl::Status started_;
};

inline std::string NameOf(const Trace& trace, NameId id) {
  return std::string(trace.name(id));
}

inline std::vector<std::string> RangeNames(const Trace& trace) {
  std::vector<std::string> names;
  for (const Range& range : trace.ranges()) {
    EXPECT_EQ(range.kind, RangeKind::kNvtx);
    EXPECT_LE(range.begin_ns, range.end_ns);
    names.push_back(NameOf(trace, range.name));
  }
  return names;
}

// Returns the range of that name. Fails the test unless there is exactly one.
inline Range RangeNamed(const Trace& trace, const std::string& name) {
  std::optional<Range> found;
  for (const Range& range : trace.ranges()) {
    if (NameOf(trace, range.name) != name) continue;
    EXPECT_FALSE(found.has_value()) << "more than one range " << name;
    found = range;
  }
  EXPECT_TRUE(found.has_value()) << "no range " << name;
  return found.value_or(Range());
}

inline std::string DetailOf(const Trace& trace, const std::string& name) {
  return NameOf(trace, RangeNamed(trace, name).detail);
}


}  // namespace stepscope
