#include "cupti_collector.h"

#include <string>
#include <utility>
#include <vector>

#include "api/cupti_status.h"
#include "buffer_pool.h"
#include "cupti_attachment.h"
#include "cupti_fork.h"
#include "cupti_recording.h"
#include "cupti_switches.h"
#include "cupti_times.h"

namespace stepscope {
namespace {

// The driver takes a lock and some microseconds to return its free memory, so
// loops with shorter steps ask less often.
constexpr int64_t kSampleEveryNs = 20'000'000;
// Room for 80 s at one sample in 20 ms; no allocation while the program trains.
constexpr size_t kMostSamples = 4096;

class CuptiCollector : public Collector {
 public:
  CuptiCollector(const CuptiOptions& options, CuptiSources sources)
      : options_(options), sources_(std::move(sources)) {}
  ~CuptiCollector() override {
    if (InForkedChild()) {
      // Every lock and handle belongs to the parent.
      (void)switches_.release();
      (void)new std::shared_ptr<CuptiAttachment>(std::move(attachment_));
      return;
    }
    if (switches_ != nullptr) Abandon();
    ProcessPool().Trim();
  }

  std::string_view name() const override { return "cupti"; }
  absl::Status Start() override;
  void OnStep(int64_t step, int64_t now_ns) override;
  absl::StatusOr<std::unique_ptr<Recording>> Stop() override;

 private:
  absl::Status Load();
  absl::Status SwitchOn();
  void Abandon();

  CuptiOptions options_;
  CuptiSources sources_;
  std::unique_ptr<CudaDriver> driver_;
  std::shared_ptr<CuptiAttachment> attachment_;

  // Of the open window; null while none is open.
  std::unique_ptr<CuptiSwitches> switches_;
  CuptiReading begin_;
  std::vector<DeviceLimits> devices_;
  std::vector<DeviceSample> samples_;
  std::vector<Loss> losses_;
  int64_t last_sample_ns_ = 0;
};

// The driver first: without one, CUPTI's version does not matter.
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
    attachment_ = std::make_shared<CuptiAttachment>(*std::move(api),
                                                    options_.detach_at_end);
  }
  return absl::OkStatus();
}

absl::Status CuptiCollector::SwitchOn() {
  CuptiApi& api = attachment_->api();
  size_t before_us = 0;
  // Reading the count of dropped records resets it, so that Stop() gets this
  // window's alone.
  (void)api.GetNumDroppedRecords(&before_us);  // another profiler's
  begin_ = ReadCuptiClock(api);
  switches_ = std::make_unique<CuptiSwitches>(api);
  return switches_->On(options_, &losses_);
}

absl::Status CuptiCollector::Start() {
  WatchForks();
  if (InForkedChild()) {
    return absl::FailedPreconditionError(
        "CUPTI: this process was forked from one that recorded the GPU, where "
        "CUDA cannot be used; start workers by spawn to record them");
  }
  if (absl::Status s = Load(); !s.ok()) return s;
  if (absl::Status s = attachment_->Hold(); !s.ok()) return s;
  losses_.clear();
  samples_.clear();
  samples_.reserve(kMostSamples);
  last_sample_ns_ = 0;
  devices_ = driver_->Devices();
  // Before the switches: CUPTI may ask for a buffer as soon as a kind is on.
  ProcessPool().Open(options_.max_buffer_bytes, options_.buffer_bytes);
  if (absl::Status s = SwitchOn(); !s.ok()) {
    Abandon();
    return s;
  }
  return absl::OkStatus();
}

// Undoes everything: the switches, the buffers and the subscription.
void CuptiCollector::Abandon() {
  switches_.reset();
  // A kind that was briefly on may have filled a buffer.
  if (ProcessPool().blocks_out() > 0) {
    (void)attachment_->api().FlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  }
  ProcessPool().Return(ProcessPool().Close().full);
  ProcessPool().Trim();
  (void)attachment_->LetGo();
}

// On the training thread, between two steps.
void CuptiCollector::OnStep(int64_t step, int64_t now_ns) {
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
  // The order of what follows: wait for the device, read the clock, switch off,
  // flush, count. Records of kinds that are on keep coming until the switches
  // are off, and the flush returns what CUPTI still holds. A running kernel has
  // no times yet, and CUPTI does not wait for it.
  if (absl::Status s = driver_->Synchronize(); !s.ok()) {
    note("cupti-not-synchronised", s);
  }
  parts.end = ReadCuptiClock(api);
  parts.watched = switches_->watched();
  switches_->Off(&losses_);
  switches_.reset();
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
  // The records point to names that CUPTI owns, so the recording keeps CUPTI
  // attached.
  parts.attachment = attachment_;
  parts.window = ProcessPool().Close();
  parts.begin = begin_;
  parts.devices = std::move(devices_);
  parts.samples = std::move(samples_);
  parts.losses = std::move(losses_);
  parts.all_calls = options_.all_calls;
  return std::make_unique<CuptiRecording>(std::move(parts));
}

}  // namespace

std::unique_ptr<Collector> MakeCuptiCollector(const CuptiOptions& options,
                                              CuptiSources sources) {
  return std::make_unique<CuptiCollector>(options, std::move(sources));
}

std::unique_ptr<Collector> MakeCuptiCollector(const CuptiOptions& options) {
  return MakeCuptiCollector(options, {.driver = [] { return LoadCudaDriver(); },
                                      .cupti = [] { return LoadCupti(); }});
}

}  // namespace stepscope
