// Builds a Trace from records by hand. CUPTI's clock is 1,000 s behind ours, so
// that a time that was not converted is obvious.
#pragma once

#include <stepscope/trace_builder.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "cupti_decode.h"
#include "fakes/cupti_records.h"
#include "fakes/fake_cupti.h"
#include "support/losses.h"

namespace stepscope {

// Converts CUPTI's time to ours.
inline constexpr int64_t kCuptiIsBehindBy = 1'000'000'000'000;
inline int64_t Ours(uint64_t cupti_ns) {
  return static_cast<int64_t>(cupti_ns) + kCuptiIsBehindBy;
}

// One tick is one nanosecond, and tick 0 is the epoch.
inline ClockMap PlainClock() {
  return ClockMap(
      {.ticks = 0, .monotonic_ns = 0, .epoch_ns = 0},
      {.ticks = 1'000'000, .monotonic_ns = 1'000'000, .epoch_ns = 1'000'000});
}

inline CuptiTimes PlainTimes() {
  const CuptiReading begin = {
      .ticks = kCuptiIsBehindBy, .cupti_ns = 0, .valid = true};
  CuptiReading end = begin;
  end.ticks += 1'000'000'000;
  end.cupti_ns += 1'000'000'000;
  return CuptiTimes(begin, end, PlainClock());
}

struct Decoded {
  CuptiDecodeResult result;
  Trace trace;
};

struct DecodeOptions {
  uint32_t version = 130001;
  std::vector<DeviceLimits> devices = {};
  bool all_calls = false;
};

inline Decoded Decode(const std::vector<std::vector<uint8_t>>& buffers,
                      const DecodeOptions& options = {}) {
  FakeCupti fake(options.version);
  const std::unique_ptr<CuptiApi> api = fake.Api();
  std::vector<CuptiBuffer> views;
  for (const auto& buffer : buffers) {
    views.push_back({buffer.data(), buffer.size()});
  }
  TraceBuilder builder;
  Decoded decoded;
  decoded.result = DecodeCupti(
      {.buffers = views,
       .times = PlainTimes(),
       .devices = options.devices,
       .text = [](const char* text) { return std::string_view(text); },
       .all_calls = options.all_calls},
      *api, builder);
  AddLosses(decoded.result, options.version, builder);
  decoded.trace = builder.Build();
  return decoded;
}

inline Decoded Decode(const RecordBuffer& buffer,
                      const DecodeOptions& options = {}) {
  return Decode(std::vector<std::vector<uint8_t>>{buffer.bytes()}, options);
}

// Returns the detail of the loss of this name; "" if there is none.
inline std::string LossDetail(const Trace& trace, std::string_view name) {
  for (const Loss& loss : trace.losses()) {
    if (loss.name == name) return loss.detail;
  }
  return "";
}

}  // namespace stepscope
