#include "cupti_recording.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "cupti_decode.h"
#include "cupti_fork.h"

namespace stepscope {
namespace {

// A good clock drifts by about 1e-5. A note is worth it only if the drift is
// well above that and large enough to move an activity into another step.
constexpr double kDriftWorthANote = 1e-4;
constexpr double kDriftWorthANoteNs = 20'000;
// CUPTI's own thread may still return buffers after the window has closed. The
// background thread waits this long for them before it decodes.
constexpr auto kLateness = std::chrono::milliseconds(200);
// The same for the thread that reads hardware counters, which may have to claim
// them first.
constexpr auto kCounterLateness = std::chrono::milliseconds(3000);
// Claiming and starting the counters take less time than this. Other clocks
// differ by years, or by the time since the machine's start.
constexpr int64_t kOtherClockNs = 10'000'000'000;

void AwaitLateBuffers(BufferPool::Window* window) {
  const auto until = std::chrono::steady_clock::now() + kLateness;
  while (!ProcessPool().TakeLate(window) &&
         std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

CuptiRecording::CuptiRecording(Parts parts) : parts_(std::move(parts)) {}

CuptiRecording::~CuptiRecording() {
  if (InForkedChild()) {  // the pool may stay locked forever
    CounterSampler::Abandon(std::move(parts_.sampler));
    return;
  }
  ProcessPool().Return(parts_.window);
  // After the last window of the last collector, free the memory.
  if (parts_.attachment.use_count() == 1) ProcessPool().Trim();
}

// Runs on the background thread. The pool's blocks are decoded in place, and
// the destructor returns them.
void CuptiRecording::AddTo(TraceBuilder& builder, const ClockMap& clock,
                           const SlotLog&) {
  for (const Kind kind : parts_.watched) builder.Watch(kind);
  for (const Loss& loss : parts_.losses) builder.Add(loss);
  for (const DeviceSample& sample : parts_.samples) builder.Add(sample);
  AwaitLateBuffers(&parts_.window);
  AddWindowLosses(builder);
  Decode(builder, clock);
}

void CuptiRecording::Decode(TraceBuilder& builder, const ClockMap& clock) {
  CuptiReading begin = parts_.begin;
  CuptiReading end = parts_.end;
  // With only one reading, the offset between the clocks is known, but not the
  // drift, which then counts as zero.
  if (!begin.valid) begin = end;
  if (!end.valid) end = begin;
  if (!begin.valid) {
    builder.Add(
        Loss{.name = "cupti-no-clock",
             .detail =
                 "CUPTI returned no time at the window's begin and end, so its "
                 "records cannot be placed in time and were left out",
             .count = -1,
             .severity = Severity::kError});
    return;
  }
  const CuptiRecords records = {
      .buffers = parts_.window.full,
      .times = CuptiTimes(begin, end, clock),
      .devices = parts_.devices,
      .text = [](const char* text) { return std::string_view(text); },
      .graph_nodes =
          parts_.attachment->follows_graphs() ? &ProcessGraphNodes() : nullptr,
      .all_calls = parts_.all_calls};
  AddCounters(records.times, builder);
  if (std::abs(records.times.drift()) > kDriftWorthANote &&
      std::abs(records.times.drift_ns()) > kDriftWorthANoteNs) {
    builder.Add(Loss{.name = "cupti-clock-drift",
                     .detail =
                         "the clocks of the GPU and the host diverged during "
                         "the window (was the system's time set?); GPU "
                         "activities may be misplaced by more than 100 us "
                         "per second",
                     .count = -1,
                     .severity = Severity::kWarning});
  }
  const CuptiApi& api = parts_.attachment->api();
  AddLosses(DecodeCupti(records, api, builder), api.version(), builder);
}

// Adds the samples of hardware counters. Their times should be on CUPTI's
// clock. If they clearly are not, the first sample is moved to the time when
// its device began to count.
void CuptiRecording::AddCounters(const CuptiTimes& times,
                                 TraceBuilder& builder) {
  if (parts_.counters == nullptr) return;
  CounterWindow::Counted counted = parts_.counters->Await(kCounterLateness);
  std::map<int32_t, uint64_t> shift;  // by device; added to the samples' times
  for (const CounterSample& sample : counted.samples) {
    const auto begun = counted.begun.find(sample.device);
    const auto [at, is_first] = shift.try_emplace(sample.device, 0);
    if (is_first && begun != counted.begun.end()) {
      const auto late = static_cast<int64_t>(sample.begin - begun->second);
      if (std::abs(late) > kOtherClockNs) {
        at->second = begun->second - sample.begin;
        counted.losses.push_back(
            {.name = "cupti-counters-other-clock",
             .detail = "the hardware counters of GPU " +
                       std::to_string(sample.device) +
                       " use a different clock from its kernels; they are "
                       "aligned to the start of counting, accurate to about "
                       "1 ms",
             .count = -1,
             .severity = Severity::kNote});
      }
    }
    // The first sample also contains the time since the counters were claimed,
    // which may be a second before the window (seen on an H200).
    uint64_t from = sample.begin + at->second;
    const uint64_t to = sample.end + at->second;
    if (begun != counted.begun.end()) from = std::max(from, begun->second);
    if (from >= to) continue;
    DeviceSample row;
    row.time_ns = times.ToNs(to);
    row.device = sample.device;
    row.counted_ns = row.time_ns - times.ToNs(from);
    row.sm_active_frac = sample.sm_active_frac;
    row.tensor_active_frac = sample.tensor_active_frac;
    row.dram_frac = sample.dram_frac;
    builder.Add(row);
  }
  if (!counted.samples.empty()) builder.Watch(Kind::kDeviceSample);
  for (const Loss& loss : counted.losses) builder.Add(loss);
}

void CuptiRecording::AddWindowLosses(TraceBuilder& builder) const {
  const BufferPool::Window& window = parts_.window;
  if (parts_.dropped_records > 0) {
    builder.Add(Loss{.name = "cupti-dropped",
                     .detail =
                         "CUPTI dropped GPU records for lack of buffers; raise "
                         "the CUPTI collector's max_buffer_bytes, or record "
                         "fewer steps",
                     .count = parts_.dropped_records,
                     .severity = Severity::kWarning});
  }
  if (window.refused > 0) {
    builder.Add(Loss{
        .name = "cupti-buffers-full",
        .detail = "CUPTI requested a buffer when all were full, and the newest "
                  "GPU records are missing; raise the CUPTI collector's "
                  "max_buffer_bytes, or record fewer steps",
        .count = window.refused,
        .severity = Severity::kWarning});
  }
  if (window.discarded > 0) {
    builder.Add(Loss{
        .name = "cupti-discarded",
        .detail = "GPU records found no room and were discarded (CUPTI before "
                  "CUDA 12.9 cannot drop them itself); raise the CUPTI "
                  "collector's max_buffer_bytes, or record fewer steps",
        .count = window.discarded,
        .severity = Severity::kWarning});
  }
  if (window.still_out > 0) {
    builder.Add(Loss{.name = "cupti-unreturned-buffers",
                     .detail = "CUPTI did not return all buffers of this "
                               "window; their GPU records are missing",
                     .count = window.still_out,
                     .severity = Severity::kWarning});
  }
}

}  // namespace stepscope
