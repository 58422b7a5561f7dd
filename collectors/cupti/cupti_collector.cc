#include "cupti_collector.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "api/cupti_status.h"
#include "buffer_pool.h"
#include "counters/counter_sampler.h"
#include "cupti_attachment.h"
#include "cupti_fork.h"
#include "cupti_recording.h"
#include "cupti_switches.h"
#include "cupti_times.h"
#include "nvml/device_sampler.h"

namespace stepscope {
namespace {

// The driver takes a lock and some microseconds to return its free memory, so
// loops with shorter steps ask less often than every step.
constexpr int64_t kSampleEveryNs = 20'000'000;
// Room for 80 s at one sample per 20 ms. Allocated in advance, so that nothing
// is allocated while the program trains.
constexpr size_t kMostSamples = 4096;
// Fewer samples per second would not show single kernels, and devices cannot
// take more.
constexpr int32_t kLeastHz = 10;
constexpr int32_t kMostHz = 10'000;
// The number of blocks that are ready when a window opens: room for the records
// of some hundred steps. More blocks are made ready between steps.
constexpr int64_t kReadyBlocks = 32;
constexpr int64_t kReadyBlocksBetweenSteps = 8;

// Parses samples per second. Returns 0 for anything that is not a positive
// number.
int32_t CountersHzFrom(std::string_view text) {
  int32_t hz = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), hz);
  return read.ec == std::errc() && hz > 0 ? hz : 0;
}

class CuptiCollector : public Collector {
 public:
  CuptiCollector(const CuptiOptions& options, CuptiSources sources)
      : options_(options), sources_(std::move(sources)) {}
  ~CuptiCollector() override {
    if (InForkedChild()) {
      // Release everything without destroying it: all locks and handles belong
      // to the parent.
      (void)switches_.release();
      DeviceSampler::Abandon(std::move(sampler_));
      CounterSampler::Abandon(std::move(counters_));
      (void)new (std::nothrow)
          std::shared_ptr<CuptiAttachment>(std::move(attachment_));
      return;
    }
    if (switches_ != nullptr) Abandon();
    ProcessPool().Trim();
  }

  std::string_view name() const override { return "cupti"; }
  void Arm() override;
  absl::Status Start() override;
  void OnStep(int64_t step, int64_t now_ns) override;
  absl::StatusOr<std::unique_ptr<Recording>> Stop() override;

 private:
  absl::Status Load();
  void OpenPool();
  absl::Status SwitchOn();
  void StopEarly(int64_t step);
  void Abandon();
  void StartCounters();

  CuptiOptions options_;
  CuptiSources sources_;
  std::unique_ptr<CudaDriver> driver_;
  std::shared_ptr<CuptiAttachment> attachment_;
  std::unique_ptr<DeviceSampler> sampler_;  // null: without NVML
  bool nvml_was_tried_ = false;
  std::shared_ptr<CounterSampler> counters_;  // null: not wanted, not possible
  bool arms_ = true;                          // Arm() has something to do

  // Members for the open window. `switches_` is null while no window is open.
  std::unique_ptr<CuptiSwitches> switches_;
  CuptiReading begin_;
  std::vector<DeviceLimits> devices_;
  std::vector<DeviceSample> samples_;
  std::vector<Loss> losses_;
  std::vector<Kind> watched_;
  int64_t last_sample_ns_ = 0;
  bool is_sampling_ = false;
  bool stopped_early_ = false;
};

// Loads the driver first, because without a driver CUPTI's version does not
// matter.
absl::Status CuptiCollector::Load() {
  if (driver_ == nullptr) {
    absl::StatusOr<std::unique_ptr<CudaDriver>> driver = sources_.driver();
    if (!driver.ok()) return driver.status();
    driver_ = *std::move(driver);
  }
  if (absl::Status s = driver_->InUse(); !s.ok()) return s;
  if (attachment_ == nullptr) {
    absl::StatusOr<std::unique_ptr<CuptiApi>> api = sources_.cupti();
    if (!api.ok()) return api.status();
    attachment_ = std::make_shared<CuptiAttachment>(
        *std::move(api), options_.detach_at_end, options_.capture_scopes);
  }
  if (options_.record_environment && !nvml_was_tried_ && sources_.nvml) {
    nvml_was_tried_ = true;
    if (auto nvml = sources_.nvml(); nvml.ok()) {
      sampler_ = std::make_unique<DeviceSampler>(*std::move(nvml));
    }
  }
  return absl::OkStatus();
}

// Tries once, as soon as the program uses CUDA. If another tool holds CUPTI, or
// there is no CUPTI, Start() reports it.
void CuptiCollector::Arm() {
  if (!arms_ || options_.capture_scopes == nullptr) return;
  if (InForkedChild()) return;
  const absl::Status loaded = Load();
  if (driver_ != nullptr && !driver_->InUse().ok()) return;
  arms_ = false;
  if (loaded.ok()) (void)attachment_->Hold();
}

// Called before the switches, because CUPTI may request a buffer as soon as a
// kind is on.
void CuptiCollector::OpenPool() {
  const CuptiApi* const api = &attachment_->api();
  BufferPool::Overflow overflow;
  overflow.discard = api->version() < kCuptiTakesNullBuffers;
  overflow.count = [api](const CuptiBuffer& buffer) {
    int64_t records = 0;
    CUpti_Activity* record = nullptr;
    while (api->GetNextRecord(buffer.data, buffer.valid_bytes, &record) ==
           CUPTI_SUCCESS) {
      ++records;
    }
    return records;
  };
  ProcessPool().Open(options_.max_buffer_bytes, options_.buffer_bytes,
                     std::move(overflow));
  ProcessPool().Prepare(kReadyBlocks);
}

absl::Status CuptiCollector::SwitchOn() {
  CuptiApi& api = attachment_->api();
  size_t before_us = 0;
  // Reading the count of dropped records resets it, so that Stop() gets the
  // count of this window alone.
  (void)api.GetNumDroppedRecords(&before_us);  // another profiler's
  begin_ = ReadCuptiClock(api);
  switches_ = std::make_unique<CuptiSwitches>(api);
  if (absl::Status s = switches_->On(options_, &losses_, is_sampling_);
      !s.ok()) {
    return s;
  }
  watched_ = switches_->watched();
  if (is_sampling_) watched_.push_back(Kind::kDeviceSample);
  return absl::OkStatus();
}

absl::Status CuptiCollector::Start() {
  if (InForkedChild()) {
    return absl::FailedPreconditionError(
        "CUPTI: this process was forked from one that recorded the GPU, where "
        "CUDA cannot be used; start workers by spawn to record them");
  }
  if (absl::Status s = Load(); !s.ok()) return s;
  if (absl::Status s = attachment_->Hold(); !s.ok()) return s;
  arms_ = false;
  losses_.clear();
  if (const CUptiResult code = attachment_->graph_code();
      code != CUPTI_SUCCESS) {
    losses_.push_back(
        {.name = "cupti-captures-unknown",
         .detail = "CUPTI does not say when CUDA graphs are captured (" +
                   attachment_->api().NameOf(code) + ", code " +
                   std::to_string(code) +
                   "), so that their kernels have no operators",
         .count = -1,
         .severity = Severity::kNote});
  }
  samples_.clear();
  samples_.reserve(kMostSamples);
  last_sample_ns_ = 0;
  stopped_early_ = false;
  devices_ = driver_->Devices();
  OpenPool();
  is_sampling_ = sampler_ != nullptr && sampler_->Start(devices_);
  if (absl::Status s = SwitchOn(); !s.ok()) {
    Abandon();
    return s;
  }
  StartCounters();
  return absl::OkStatus();
}

// An error of the counters must not stop the rest of the recording.
void CuptiCollector::StartCounters() {
  if (options_.counters_hz <= 0) return;
  std::string missing;
  if (attachment_->api().counters(&missing) == nullptr) {
    losses_.push_back(
        {.name = "cupti-counters-unavailable",
         .detail = "no hardware counters: " + attachment_->api().library() +
                   " has no function " + missing +
                   "; they need CUPTI of CUDA 12.6 or later. Everything else "
                   "is recorded",
         .count = -1,
         .severity = Severity::kWarning});
    return;
  }
  if (counters_ == nullptr) {
    counters_ = std::make_shared<CounterSampler>(
        attachment_->shared_api(),
        std::clamp(options_.counters_hz, kLeastHz, kMostHz));
  }
  (void)counters_->Start(devices_);
}

// Undoes everything: the switches, the buffers and the subscription.
void CuptiCollector::Abandon() {
  switches_.reset();
  // A kind that was on briefly may have filled a buffer.
  if (ProcessPool().blocks_out() > 0) {
    (void)attachment_->api().FlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  }
  ProcessPool().Return(ProcessPool().Close());
  ProcessPool().Trim();
  if (sampler_ != nullptr) (void)sampler_->Stop();
  if (counters_ != nullptr) (void)counters_->Stop();
  (void)attachment_->LetGo();
}

// The pool is full: no further record can be kept, and each would cost the
// program time.
void CuptiCollector::StopEarly(int64_t step) {
  stopped_early_ = true;
  switches_->Off(&losses_);
  losses_.push_back(
      {.name = "cupti-stopped-early",
       .detail = "the GPU was no longer recorded after step " +
                 std::to_string(step) +
                 ", because the memory for its records was used up; raise the "
                 "CUPTI collector's max_buffer_bytes, or record fewer steps",
       .count = -1,
       .severity = Severity::kError});
}

// Called on the training thread, between two steps.
void CuptiCollector::OnStep(int64_t step, int64_t now_ns) {
  if (!stopped_early_) {
    if (ProcessPool().is_running_out()) {
      StopEarly(step);
    } else {
      ProcessPool().Prepare(kReadyBlocksBetweenSteps);
    }
  }
  if (!options_.record_environment || samples_.size() == kMostSamples ||
      now_ns - last_sample_ns_ < kSampleEveryNs) {
    return;
  }
  DeviceSample sample;
  sample.time_ns = now_ns;
  sample.step = step;
  if (!driver_->MemoryOfCurrentDevice(&sample.device, &sample.free_bytes,
                                      &sample.total_bytes)) {
    return;
  }
  last_sample_ns_ = now_ns;
  samples_.push_back(sample);
}

absl::StatusOr<std::unique_ptr<Recording>> CuptiCollector::Stop() {
  CuptiApi& api = attachment_->api();
  CuptiRecording::Parts parts;
  const auto note = [&](std::string name, const absl::Status& status) {
    losses_.push_back({.name = std::move(name),
                       .detail = std::string(status.message().data(),
                                             status.message().size()),
                       .count = -1,
                       .severity = Severity::kWarning});
  };
  // The order matters: wait for the device, read the clock, switch off, flush,
  // count. The wait comes first, because a running kernel has no times yet, and
  // CUPTI does not wait for it. Records keep coming until the switches are off,
  // and the flush returns those that CUPTI still holds.
  if (absl::Status s = driver_->Synchronize(); !s.ok()) {
    note("cupti-not-synchronised", s);
  }
  parts.end = ReadCuptiClock(api);
  switches_->Off(&losses_);
  switches_.reset();
  parts.watched = std::move(watched_);
  if (const CUptiResult code = api.FlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
      code != CUPTI_SUCCESS) {
    note("cupti-flush-failed", CuptiError(api, "flush its buffers", code));
  }
  size_t dropped = 0;
  if (const CUptiResult code = api.GetNumDroppedRecords(&dropped);
      code != CUPTI_SUCCESS) {
    note("cupti-drops-unknown",
         CuptiError(api, "count its dropped records", code));
  }
  parts.dropped_records = static_cast<int64_t>(dropped);
  if (const CUptiResult code = attachment_->LetGo(); code != CUPTI_SUCCESS) {
    note("cupti-still-subscribed", CuptiError(api, "unsubscribe", code));
  }
  // The recording keeps CUPTI attached, because its records point to names that
  // CUPTI owns.
  parts.attachment = attachment_;
  parts.window = ProcessPool().Close();
  parts.begin = begin_;
  parts.devices = std::move(devices_);
  parts.samples = std::move(samples_);
  if (is_sampling_) {
    for (const DeviceSample& sample : sampler_->Stop()) {
      parts.samples.push_back(sample);
    }
  }
  if (counters_ != nullptr) {
    parts.sampler = counters_;
    parts.counters = counters_->Stop();
  }
  parts.losses = std::move(losses_);
  parts.all_calls = options_.all_calls;
  return std::make_unique<CuptiRecording>(std::move(parts));
}

}  // namespace

std::unique_ptr<Collector> MakeCuptiCollector(const CuptiOptions& options,
                                              CuptiSources sources) {
  return std::make_unique<CuptiCollector>(options, std::move(sources));
}

std::unique_ptr<Collector> MakeCuptiCollector(const CuptiOptions& given) {
  CuptiOptions options = given;
  if (options.counters_hz < 0) {
    const char* text = std::getenv("STEPSCOPE_GPU_COUNTERS");
    options.counters_hz = text == nullptr ? 0 : CountersHzFrom(text);
  }
  return MakeCuptiCollector(options, {.driver = [] { return LoadCudaDriver(); },
                                      .cupti = [] { return LoadCupti(); },
                                      .nvml = [] { return LoadNvml(); }});
}

}  // namespace stepscope
