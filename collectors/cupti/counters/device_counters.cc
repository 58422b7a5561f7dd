#include "counters/device_counters.h"

#include <algorithm>
#include <cstddef>

namespace stepscope {
namespace {

// The device's buffer for counts that were not read yet. Some megabytes arrive
// between two readings.
constexpr size_t kHardwareBytes = size_t{64} << 20;
constexpr uint32_t kMostSamples = 1024;  // per call that decodes
constexpr int kMostCalls = 64;           // per reading, so that it ends
// Assumed for devices whose clock is not known.
constexpr int32_t kUsualClockKhz = 1'400'000;
// From this version on (CUDA 12.8) the configuration structure has a field for
// the mode of the buffer. In older versions the buffer keeps the oldest counts.
constexpr uint32_t kKnowsBufferMode = 26;

}  // namespace

DeviceCounters::DeviceCounters(CuptiApi& api, const DeviceLimits& device,
                               int32_t hz)
    : api_(api),
      f_(CountersOf(api)),
      ordinal_(device.ordinal),
      clock_khz_(device.clock_khz > 0 ? device.clock_khz : kUsualClockKhz),
      hz_(hz),
      choice_(api) {}

DeviceCounters::~DeviceCounters() {
  if (is_on_) (void)Stop();
  if (sampling_ == nullptr) return;
  auto params = Sized<CUpti_PmSampling_Disable_Params>(
      CUpti_PmSampling_Disable_Params_STRUCT_SIZE);
  params.pPmSamplingObject = sampling_;
  (void)f_.disable(&params);
}

absl::Status DeviceCounters::Open() {
  if (absl::Status s = CheckSupport(); !s.ok()) return s;
  auto chip = Sized<CUpti_Device_GetChipName_Params>(
      CUpti_Device_GetChipName_Params_STRUCT_SIZE);
  chip.deviceIndex = static_cast<size_t>(ordinal_);
  if (absl::Status s = Check("name the device's chip", f_.get_chip_name(&chip));
      !s.ok()) {
    return s;
  }
  if (chip.pChipName == nullptr) {
    return absl::UnavailableError("CUPTI: the device's chip has no name");
  }
  std::vector<uint8_t> available;
  if (absl::Status s = ListAvailable(available); !s.ok()) return s;
  if (absl::Status s = choice_.Choose(chip.pChipName, available); !s.ok()) {
    return s;
  }
  if (absl::Status s = Claim(); !s.ok()) return s;
  return Configure();
}

absl::Status DeviceCounters::CheckSupport() {
  auto initialize = Sized<CUpti_Profiler_Initialize_Params>(
      CUpti_Profiler_Initialize_Params_STRUCT_SIZE);
  if (absl::Status s =
          Check("initialise its hardware counters", f_.initialize(&initialize));
      !s.ok()) {
    return s;
  }
  auto supported = Sized<CUpti_Profiler_DeviceSupported_Params>(
      CUpti_Profiler_DeviceSupported_Params_STRUCT_SIZE);
  supported.cuDevice = ordinal_;
  supported.api = CUPTI_PROFILER_PM_SAMPLING;
  // Device 0 means the device of this thread's context, but this thread has no
  // context. If the call fails for that reason, the later calls show whether
  // sampling works.
  if (f_.device_supported(&supported) == CUPTI_SUCCESS &&
      supported.isSupported != CUPTI_PROFILER_CONFIGURATION_SUPPORTED) {
    return absl::UnavailableError(
        "CUPTI: this device, or the way it is set up (MIG, a virtual GPU, "
        "confidential computing), has no hardware counters to sample");
  }
  return absl::OkStatus();
}

// Lists the counters that this machine allows to be read: first the size of the
// list, then the list.
absl::Status DeviceCounters::ListAvailable(std::vector<uint8_t>& available) {
  auto params = Sized<CUpti_PmSampling_GetCounterAvailability_Params>(
      CUpti_PmSampling_GetCounterAvailability_Params_STRUCT_SIZE);
  params.deviceIndex = static_cast<size_t>(ordinal_);
  // Without a buffer the call returns the needed size; with one it fills it.
  for (int call = 0; call < 2; ++call) {
    if (absl::Status s =
            Check("list the hardware counters", f_.get_availability(&params));
        !s.ok()) {
      return s;
    }
    available.resize(params.counterAvailabilityImageSize);
    params.pCounterAvailabilityImage = available.data();
  }
  return absl::OkStatus();
}

absl::Status DeviceCounters::Claim() {
  if (is_on_) (void)Stop();
  if (sampling_ != nullptr) return absl::OkStatus();  // by the last Open()
  auto params = Sized<CUpti_PmSampling_Enable_Params>(
      CUpti_PmSampling_Enable_Params_STRUCT_SIZE);
  params.deviceIndex = static_cast<size_t>(ordinal_);
  absl::Status status =
      Check("claim the hardware counters", f_.enable(&params));
  if (status.ok()) sampling_ = params.pPmSamplingObject;
  return status;
}

absl::Status DeviceCounters::Configure() {
  auto config = Sized<CUpti_PmSampling_SetConfig_Params>(
      api_.version() < kKnowsBufferMode
          ? offsetof(CUpti_PmSampling_SetConfig_Params, hwBufferAppendMode)
          : CUpti_PmSampling_SetConfig_Params_STRUCT_SIZE);
  config.pPmSamplingObject = sampling_;
  config.configSize = choice_.config().size();
  config.pConfig = choice_.config().data();
  config.hardwareBufferSize = kHardwareBytes;
  config.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
  config.samplingInterval = static_cast<uint64_t>(1'000'000'000 / hz_);
  // If the buffer is full, keep the counts so far. The gap comes after them.
  config.hwBufferAppendMode =
      CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST;
  is_regular_ = true;
  CUptiResult code = f_.set_config(&config);
  // GA100 and Turing cannot sample by time, only by clock cycles of the device.
  if (code == CUPTI_ERROR_NOT_SUPPORTED ||
      code == CUPTI_ERROR_INVALID_PARAMETER) {
    config.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL;
    // Converted with the nominal clock, so the rate varies with the real clock.
    config.samplingInterval =
        static_cast<uint64_t>(int64_t{clock_khz_} * 1000 / hz_);
    is_regular_ = false;
    code = f_.set_config(&config);
  }
  if (absl::Status s = Check("configure the sampling", code); !s.ok()) return s;
  auto size = Sized<CUpti_PmSampling_GetCounterDataSize_Params>(
      CUpti_PmSampling_GetCounterDataSize_Params_STRUCT_SIZE);
  size.pPmSamplingObject = sampling_;
  size.pMetricNames = choice_.metrics().data();
  size.numMetrics = choice_.metrics().size();
  size.maxSamples = kMostSamples;
  if (absl::Status s = Check("make room for samples", f_.get_data_size(&size));
      !s.ok()) {
    return s;
  }
  data_.assign(size.counterDataSize, 0);
  return ClearData();
}

absl::Status DeviceCounters::ClearData() {
  auto params = Sized<CUpti_PmSampling_CounterDataImage_Initialize_Params>(
      CUpti_PmSampling_CounterDataImage_Initialize_Params_STRUCT_SIZE);
  params.pPmSamplingObject = sampling_;
  params.counterDataSize = data_.size();
  params.pCounterData = data_.data();
  return Check("make room for samples", f_.initialize_data(&params));
}

absl::Status DeviceCounters::Start() {
  auto params = Sized<CUpti_PmSampling_Start_Params>(
      CUpti_PmSampling_Start_Params_STRUCT_SIZE);
  params.pPmSamplingObject = sampling_;
  overflows_ = 0;
  absl::Status status = Check("start the sampling", f_.start(&params));
  is_on_ = status.ok();
  return status;
}

absl::Status DeviceCounters::Stop() {
  auto params = Sized<CUpti_PmSampling_Stop_Params>(
      CUpti_PmSampling_Stop_Params_STRUCT_SIZE);
  params.pPmSamplingObject = sampling_;
  is_on_ = false;
  return Check("stop the sampling", f_.stop(&params));
}

// Decodes until the device's buffer is empty.
absl::Status DeviceCounters::Read(std::vector<CounterSample>& samples) {
  for (int call = 0; call < kMostCalls; ++call) {
    auto decode = Sized<CUpti_PmSampling_DecodeData_Params>(
        CUpti_PmSampling_DecodeData_Params_STRUCT_SIZE);
    decode.pPmSamplingObject = sampling_;
    decode.pCounterDataImage = data_.data();
    decode.counterDataImageSize = data_.size();
    const CUptiResult code = f_.decode(&decode);
    const bool is_full = code == CUPTI_ERROR_OUT_OF_MEMORY;
    overflows_ += is_full || decode.overflow != 0;
    if (is_full) return Restart();
    if (absl::Status s = Check("read samples", code); !s.ok()) return s;
    auto info = Sized<CUpti_PmSampling_GetCounterDataInfo_Params>(
        CUpti_PmSampling_GetCounterDataInfo_Params_STRUCT_SIZE);
    info.pCounterDataImage = data_.data();
    info.counterDataImageSize = data_.size();
    if (absl::Status s = Check("read samples", f_.get_data_info(&info));
        !s.ok()) {
      return s;
    }
    const size_t count =
        std::min<size_t>(info.numCompletedSamples, kMostSamples);
    for (size_t i = 0; i < count; ++i) {
      if (absl::Status s = ReadOne(i, samples); !s.ok()) return s;
    }
    if (absl::Status s = ClearData(); !s.ok()) return s;
    if (decode.decodeStopReason !=
        CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL) {
      break;
    }
  }
  return absl::OkStatus();
}

// Restarts sampling, because after an overflow the device counts nothing more.
absl::Status DeviceCounters::Restart() {
  if (!is_on_) return absl::OkStatus();
  // Keep the number of overflows, which Start() sets to 0.
  const int64_t overflows = overflows_;
  if (absl::Status s = Stop(); !s.ok()) return s;
  absl::Status status = Start();
  overflows_ = overflows;
  return status;
}

absl::Status DeviceCounters::ReadOne(size_t index,
                                     std::vector<CounterSample>& samples) {
  auto info = Sized<CUpti_PmSampling_CounterData_GetSampleInfo_Params>(
      CUpti_PmSampling_CounterData_GetSampleInfo_Params_STRUCT_SIZE);
  info.pPmSamplingObject = sampling_;
  info.pCounterDataImage = data_.data();
  info.counterDataImageSize = data_.size();
  info.sampleIndex = index;
  if (absl::Status s = Check("read a sample's time", f_.get_sample_info(&info));
      !s.ok()) {
    return s;
  }
  CounterSample sample = {.begin = info.startTimestamp,
                          .end = info.endTimestamp,
                          .device = ordinal_};
  if (absl::Status s = choice_.Evaluate(data_, index, sample); !s.ok()) {
    return s;
  }
  // An interval of length 0 has no rates.
  if (sample.end > sample.begin) samples.push_back(sample);
  return absl::OkStatus();
}

}  // namespace stepscope
