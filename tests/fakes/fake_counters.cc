#include "fakes/fake_counters.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

#include "fakes/fake_cupti.h"

namespace stepscope {
namespace {

constexpr uint64_t kMagic = 0xC0047E25;

// The header of an image of samples; the samples follow.
struct DataHead {
  uint64_t magic = 0;
  uint64_t most = 0;
  uint64_t count = 0;
};

template <typename Params>
bool Fits(const Params* params, size_t bytes) {
  return params != nullptr && params->structSize == bytes &&
         params->pPriv == nullptr;
}

}  // namespace

FakeCounters& FakeCounters::Get() {
  static auto* const fake = new FakeCounters;
  return *fake;
}

void FakeCounters::Reset(FakeCupti* cupti) {
  const std::lock_guard lock(mutex_);
  settings_ = {};
  cupti_ = cupti;
  calls_.clear();
  for (Host* host : std::exchange(hosts_, {})) delete host;
  for (const auto& [device, sampling] : std::exchange(samplings_, {})) {
    delete sampling;
  }
}

int FakeCounters::claimed() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(samplings_.size());
}
int FakeCounters::hosts() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(hosts_.size());
}
bool FakeCounters::is_on() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      samplings_, [](const auto& entry) { return entry.second->is_on; });
}
std::vector<std::string> FakeCounters::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

CUptiResult FakeCounters::Enter(const char* name) {
  calls_.emplace_back(name);
  const auto found = settings_.failures.find(name);
  return found == settings_.failures.end() ? CUPTI_SUCCESS : found->second;
}

uint64_t FakeCounters::Now() const {
  return cupti_ == nullptr
             ? 0
             : cupti_->ClockNow() +
                   static_cast<uint64_t>(settings_.clock_offset_ns);
}

// Adds the samples that the device has counted since the last call.
void FakeCounters::Count(Sampling& sampling) {
  if (!sampling.is_on || sampling.is_full) return;
  const auto interval = static_cast<uint64_t>(interval_ns_);
  for (const uint64_t now = Now(); sampling.counted_to + interval <= now;
       sampling.counted_to += interval) {
    if (sampling.waiting.size() == settings_.most_waiting) {
      sampling.is_full = true;
      return;
    }
    Sample sample = {.begin = sampling.counted_to,
                     .end = sampling.counted_to + interval};
    for (size_t i = 0; i < configured_.size(); ++i) {
      const auto value = settings_.values.find(configured_[i]);
      sample.values[i] = value == settings_.values.end() ? 0 : value->second;
    }
    sampling.waiting.push_back(sample);
  }
}

// CUPTI's functions. Each takes the lock and counts the call. It fails if a
// test said so.
struct FakeCounterCalls {
  using Lock = std::lock_guard<std::mutex>;

#define STEPSCOPE_FAKE_ENTER(name, type)                      \
  FakeCounters& fake = FakeCounters::Get();                   \
  const Lock lock(fake.mutex_);                               \
  if (CUptiResult r = fake.Enter(name); r != CUPTI_SUCCESS) { \
    return r;                                                 \
  }                                                           \
  if (!Fits(params, type##_STRUCT_SIZE)) return CUPTI_ERROR_INVALID_PARAMETER

  static CUptiResult Initialize(CUpti_Profiler_Initialize_Params* params) {
    STEPSCOPE_FAKE_ENTER("Initialize", CUpti_Profiler_Initialize_Params);
    return CUPTI_SUCCESS;
  }
  static CUptiResult Deinitialize(CUpti_Profiler_DeInitialize_Params* params) {
    STEPSCOPE_FAKE_ENTER("Deinitialize", CUpti_Profiler_DeInitialize_Params);
    return CUPTI_SUCCESS;
  }
  static CUptiResult DeviceSupported(
      CUpti_Profiler_DeviceSupported_Params* params) {
    STEPSCOPE_FAKE_ENTER("DeviceSupported",
                         CUpti_Profiler_DeviceSupported_Params);
    if (params->api != CUPTI_PROFILER_PM_SAMPLING) {
      return CUPTI_ERROR_INVALID_PARAMETER;
    }
    params->isSupported = fake.settings_.is_supported
                              ? CUPTI_PROFILER_CONFIGURATION_SUPPORTED
                              : CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED;
    return CUPTI_SUCCESS;
  }
  static CUptiResult GetChipName(CUpti_Device_GetChipName_Params* params) {
    STEPSCOPE_FAKE_ENTER("GetChipName", CUpti_Device_GetChipName_Params);
    params->pChipName = fake.settings_.chip.c_str();
    return CUPTI_SUCCESS;
  }
  static CUptiResult GetAvailability(
      CUpti_PmSampling_GetCounterAvailability_Params* params) {
    STEPSCOPE_FAKE_ENTER("GetAvailability",
                         CUpti_PmSampling_GetCounterAvailability_Params);
    params->counterAvailabilityImageSize = sizeof(kMagic);
    if (params->pCounterAvailabilityImage != nullptr) {
      std::memcpy(params->pCounterAvailabilityImage, &kMagic, sizeof(kMagic));
    }
    return CUPTI_SUCCESS;
  }

  static FakeCounters::Host* HostOf(FakeCounters& fake, void* object) {
    auto* host = static_cast<FakeCounters::Host*>(object);
    return fake.hosts_.contains(host) ? host : nullptr;
  }
  static CUptiResult HostInitialize(
      CUpti_Profiler_Host_Initialize_Params* params) {
    STEPSCOPE_FAKE_ENTER("HostInitialize",
                         CUpti_Profiler_Host_Initialize_Params);
    uint64_t magic = 0;
    if (params->pCounterAvailabilityImage != nullptr) {
      std::memcpy(&magic, params->pCounterAvailabilityImage, sizeof(magic));
    }
    if (params->profilerType != CUPTI_PROFILER_TYPE_PM_SAMPLING ||
        params->pChipName == nullptr ||
        params->pChipName != fake.settings_.chip || magic != kMagic) {
      return CUPTI_ERROR_INVALID_PARAMETER;
    }
    auto* host = new FakeCounters::Host;
    fake.hosts_.insert(host);
    params->pHostObject = reinterpret_cast<CUpti_Profiler_Host_Object*>(host);
    return CUPTI_SUCCESS;
  }
  static CUptiResult HostDeinitialize(
      CUpti_Profiler_Host_Deinitialize_Params* params) {
    STEPSCOPE_FAKE_ENTER("HostDeinitialize",
                         CUpti_Profiler_Host_Deinitialize_Params);
    FakeCounters::Host* host = HostOf(fake, params->pHostObject);
    if (host == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
    fake.hosts_.erase(host);
    delete host;
    return CUPTI_SUCCESS;
  }
  static CUptiResult AddMetrics(
      CUpti_Profiler_Host_ConfigAddMetrics_Params* params) {
    STEPSCOPE_FAKE_ENTER("AddMetrics",
                         CUpti_Profiler_Host_ConfigAddMetrics_Params);
    FakeCounters::Host* host = HostOf(fake, params->pHostObject);
    if (host == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
    for (size_t i = 0; i < params->numMetrics; ++i) {
      const std::string name = params->ppMetricNames[i];
      if (!fake.settings_.metrics.contains(name)) {
        return CUPTI_ERROR_INVALID_METRIC_NAME;
      }
      host->metrics.push_back(name);
    }
    return CUPTI_SUCCESS;
  }
  // An image is a list of names, one per line.
  static std::string ImageOf(const FakeCounters::Host& host) {
    std::string image;
    for (const std::string& name : host.metrics) image += name + "\n";
    return image;
  }
  static CUptiResult GetConfigSize(
      CUpti_Profiler_Host_GetConfigImageSize_Params* params) {
    STEPSCOPE_FAKE_ENTER("GetConfigSize",
                         CUpti_Profiler_Host_GetConfigImageSize_Params);
    FakeCounters::Host* host = HostOf(fake, params->pHostObject);
    if (host == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
    params->configImageSize = ImageOf(*host).size();
    return CUPTI_SUCCESS;
  }
  static CUptiResult GetConfig(
      CUpti_Profiler_Host_GetConfigImage_Params* params) {
    STEPSCOPE_FAKE_ENTER("GetConfig",
                         CUpti_Profiler_Host_GetConfigImage_Params);
    FakeCounters::Host* host = HostOf(fake, params->pHostObject);
    const std::string image = host == nullptr ? "" : ImageOf(*host);
    if (host == nullptr || params->configImageSize < image.size()) {
      return CUPTI_ERROR_INVALID_PARAMETER;
    }
    std::memcpy(params->pConfigImage, image.data(), image.size());
    return CUPTI_SUCCESS;
  }
  static std::vector<std::string> MetricsIn(const uint8_t* image, size_t size) {
    std::vector<std::string> metrics;
    std::string name;
    for (size_t i = 0; i < size; ++i) {
      if (image[i] != '\n') {
        name += static_cast<char>(image[i]);
      } else {
        metrics.push_back(std::exchange(name, {}));
      }
    }
    return metrics;
  }
  static CUptiResult GetPasses(
      CUpti_Profiler_Host_GetNumOfPasses_Params* params) {
    STEPSCOPE_FAKE_ENTER("GetPasses",
                         CUpti_Profiler_Host_GetNumOfPasses_Params);
    const size_t count =
        MetricsIn(params->pConfigImage, params->configImageSize).size();
    const size_t most = fake.settings_.most_in_one_pass;
    params->numOfPasses = (count + most - 1) / most;
    return CUPTI_SUCCESS;
  }

  static FakeCounters::Sampling* SamplingOf(FakeCounters& fake, void* object) {
    for (const auto& [device, sampling] : fake.samplings_) {
      if (sampling == object) return sampling;
    }
    return nullptr;
  }
  static CUptiResult Enable(CUpti_PmSampling_Enable_Params* params) {
    STEPSCOPE_FAKE_ENTER("Enable", CUpti_PmSampling_Enable_Params);
    FakeCounters::Sampling*& sampling = fake.samplings_[params->deviceIndex];
    if (sampling != nullptr) return CUPTI_ERROR_INVALID_OPERATION;
    sampling = new FakeCounters::Sampling;
    params->pPmSamplingObject =
        reinterpret_cast<CUpti_PmSampling_Object*>(sampling);
    return CUPTI_SUCCESS;
  }
  static CUptiResult Disable(CUpti_PmSampling_Disable_Params* params) {
    FakeCupti* cupti = nullptr;
    {
      STEPSCOPE_FAKE_ENTER("Disable", CUpti_PmSampling_Disable_Params);
      FakeCounters::Sampling* sampling =
          SamplingOf(fake, params->pPmSamplingObject);
      if (sampling == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
      std::erase_if(fake.samplings_, [&](const auto& entry) {
        return entry.second == sampling;
      });
      delete sampling;
      cupti = fake.cupti_;
    }
    if (cupti != nullptr) cupti->DetachByCounters();
    return CUPTI_SUCCESS;
  }
  static CUptiResult SetConfig(CUpti_PmSampling_SetConfig_Params* params) {
    FakeCounters& fake = FakeCounters::Get();
    const Lock lock(fake.mutex_);
    if (CUptiResult r = fake.Enter("SetConfig"); r != CUPTI_SUCCESS) return r;
    // The parameters of CUDA 12.6 lack the buffer's mode.
    const bool is_short = fake.cupti_ != nullptr && fake.cupti_->version() < 26;
    if (!Fits(params, is_short
                          ? offsetof(CUpti_PmSampling_SetConfig_Params,
                                     hwBufferAppendMode)
                          : CUpti_PmSampling_SetConfig_Params_STRUCT_SIZE)) {
      return CUPTI_ERROR_INVALID_PARAMETER;
    }
    FakeCounters::Sampling* sampling =
        SamplingOf(fake, params->pPmSamplingObject);
    if (sampling == nullptr || params->samplingInterval == 0 ||
        params->hardwareBufferSize == 0) {
      return CUPTI_ERROR_INVALID_PARAMETER;
    }
    const bool by_time =
        params->triggerMode == CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
    if (by_time && !fake.settings_.has_timer) return CUPTI_ERROR_NOT_SUPPORTED;
    fake.configured_ = MetricsIn(params->pConfig, params->configSize);
    if (fake.configured_.empty() ||
        fake.configured_.size() > fake.settings_.most_in_one_pass) {
      return CUPTI_ERROR_NOT_SUPPORTED;
    }
    // The clock is 1 GHz, so that one clock is 1 ns.
    fake.interval_ns_ = static_cast<int64_t>(params->samplingInterval);
    sampling->is_configured = true;
    return CUPTI_SUCCESS;
  }
  static CUptiResult GetDataSize(
      CUpti_PmSampling_GetCounterDataSize_Params* params) {
    STEPSCOPE_FAKE_ENTER("GetDataSize",
                         CUpti_PmSampling_GetCounterDataSize_Params);
    if (SamplingOf(fake, params->pPmSamplingObject) == nullptr ||
        params->maxSamples == 0 || params->numMetrics == 0) {
      return CUPTI_ERROR_INVALID_PARAMETER;
    }
    params->counterDataSize =
        sizeof(DataHead) + params->maxSamples * sizeof(FakeCounters::Sample);
    return CUPTI_SUCCESS;
  }
  static CUptiResult InitializeData(
      CUpti_PmSampling_CounterDataImage_Initialize_Params* params) {
    STEPSCOPE_FAKE_ENTER("InitializeData",
                         CUpti_PmSampling_CounterDataImage_Initialize_Params);
    if (SamplingOf(fake, params->pPmSamplingObject) == nullptr ||
        params->counterDataSize < sizeof(DataHead)) {
      return CUPTI_ERROR_INVALID_PARAMETER;
    }
    const DataHead head = {.magic = kMagic,
                           .most = (params->counterDataSize - sizeof(head)) /
                                   sizeof(FakeCounters::Sample)};
    std::memcpy(params->pCounterData, &head, sizeof(head));
    return CUPTI_SUCCESS;
  }
  static CUptiResult Start(CUpti_PmSampling_Start_Params* params) {
    STEPSCOPE_FAKE_ENTER("Start", CUpti_PmSampling_Start_Params);
    FakeCounters::Sampling* sampling =
        SamplingOf(fake, params->pPmSamplingObject);
    if (sampling == nullptr || !sampling->is_configured || sampling->is_on) {
      return CUPTI_ERROR_INVALID_OPERATION;
    }
    sampling->is_on = true;
    sampling->is_full = false;
    sampling->counted_to = fake.Now();
    return CUPTI_SUCCESS;
  }
  static CUptiResult Stop(CUpti_PmSampling_Stop_Params* params) {
    STEPSCOPE_FAKE_ENTER("Stop", CUpti_PmSampling_Stop_Params);
    FakeCounters::Sampling* sampling =
        SamplingOf(fake, params->pPmSamplingObject);
    if (sampling == nullptr || !sampling->is_on) {
      return CUPTI_ERROR_INVALID_OPERATION;
    }
    fake.Count(*sampling);
    sampling->is_on = false;
    return CUPTI_SUCCESS;
  }

  static DataHead HeadOf(const uint8_t* image) {
    DataHead head;
    std::memcpy(&head, image, sizeof(head));
    return head;
  }
  static CUptiResult Decode(CUpti_PmSampling_DecodeData_Params* params) {
    STEPSCOPE_FAKE_ENTER("Decode", CUpti_PmSampling_DecodeData_Params);
    FakeCounters::Sampling* sampling =
        SamplingOf(fake, params->pPmSamplingObject);
    DataHead head = HeadOf(params->pCounterDataImage);
    if (sampling == nullptr || head.magic != kMagic || head.count != 0) {
      return CUPTI_ERROR_INVALID_PARAMETER;
    }
    fake.Count(*sampling);
    if (sampling->is_full) {
      sampling->waiting.clear();
      return CUPTI_ERROR_OUT_OF_MEMORY;
    }
    head.count = std::min<uint64_t>(head.most, sampling->waiting.size());
    std::memcpy(params->pCounterDataImage, &head, sizeof(head));
    if (head.count > 0) {
      std::memcpy(params->pCounterDataImage + sizeof(head),
                  sampling->waiting.data(),
                  head.count * sizeof(FakeCounters::Sample));
    }

    sampling->waiting.erase(
        sampling->waiting.begin(),
        sampling->waiting.begin() + static_cast<std::ptrdiff_t>(head.count));
    params->decodeStopReason =
        sampling->waiting.empty()
            ? CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS
            : CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL;
    params->overflow = 0;
    return CUPTI_SUCCESS;
  }
  static CUptiResult GetDataInfo(
      CUpti_PmSampling_GetCounterDataInfo_Params* params) {
    STEPSCOPE_FAKE_ENTER("GetDataInfo",
                         CUpti_PmSampling_GetCounterDataInfo_Params);
    const DataHead head = HeadOf(params->pCounterDataImage);
    if (head.magic != kMagic) return CUPTI_ERROR_INVALID_PARAMETER;
    params->numTotalSamples = head.most;
    params->numPopulatedSamples = head.count;
    params->numCompletedSamples = head.count;
    return CUPTI_SUCCESS;
  }
  // Returns false if the image has no such sample.
  static bool SampleIn(const uint8_t* image, size_t index,
                       FakeCounters::Sample* sample) {
    const DataHead head = HeadOf(image);
    if (head.magic != kMagic || index >= head.count) return false;
    std::memcpy(sample, image + sizeof(head) + index * sizeof(*sample),
                sizeof(*sample));
    return true;
  }
  static CUptiResult GetSampleInfo(
      CUpti_PmSampling_CounterData_GetSampleInfo_Params* params) {
    STEPSCOPE_FAKE_ENTER("GetSampleInfo",
                         CUpti_PmSampling_CounterData_GetSampleInfo_Params);
    FakeCounters::Sample sample;
    if (!SampleIn(params->pCounterDataImage, params->sampleIndex, &sample)) {
      return CUPTI_ERROR_INVALID_PARAMETER;
    }
    params->startTimestamp = sample.begin;
    params->endTimestamp = sample.end;
    return CUPTI_SUCCESS;
  }
  static CUptiResult Evaluate(
      CUpti_Profiler_Host_EvaluateToGpuValues_Params* params) {
    STEPSCOPE_FAKE_ENTER("Evaluate",
                         CUpti_Profiler_Host_EvaluateToGpuValues_Params);
    const FakeCounters::Host* host = HostOf(fake, params->pHostObject);
    FakeCounters::Sample sample;
    if (host == nullptr ||
        !SampleIn(params->pCounterDataImage, params->rangeIndex, &sample)) {
      return CUPTI_ERROR_INVALID_PARAMETER;
    }
    for (size_t i = 0; i < params->numMetrics; ++i) {
      const std::string name = params->ppMetricNames[i];
      const auto at = std::ranges::find(fake.configured_, name);
      // The image is of another configuration or of another host object.
      if (at == fake.configured_.end() ||
          std::ranges::find(host->metrics, name) == host->metrics.end()) {
        return CUPTI_ERROR_INVALID_METRIC_NAME;
      }
      params->pMetricValues[i] = sample.values[at - fake.configured_.begin()];
    }
    return CUPTI_SUCCESS;
  }
#undef STEPSCOPE_FAKE_ENTER
};

const CounterFunctions& FakeCounters::Functions() {
  using Calls = FakeCounterCalls;
  static constexpr CounterFunctions kFunctions = {
      .initialize = &Calls::Initialize,
      .deinitialize = &Calls::Deinitialize,
      .device_supported = &Calls::DeviceSupported,
      .get_chip_name = &Calls::GetChipName,
      .host_initialize = &Calls::HostInitialize,
      .host_deinitialize = &Calls::HostDeinitialize,
      .add_metrics = &Calls::AddMetrics,
      .get_config_size = &Calls::GetConfigSize,
      .get_config = &Calls::GetConfig,
      .get_passes = &Calls::GetPasses,
      .evaluate = &Calls::Evaluate,
      .get_availability = &Calls::GetAvailability,
      .enable = &Calls::Enable,
      .disable = &Calls::Disable,
      .set_config = &Calls::SetConfig,
      .get_data_size = &Calls::GetDataSize,
      .initialize_data = &Calls::InitializeData,
      .start = &Calls::Start,
      .stop = &Calls::Stop,
      .decode = &Calls::Decode,
      .get_data_info = &Calls::GetDataInfo,
      .get_sample_info = &Calls::GetSampleInfo};
  return kFunctions;
}

}  // namespace stepscope
