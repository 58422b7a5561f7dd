// CounterFunctions: CUPTI's functions for sampling hardware counters (PM
// sampling, CUDA 12.6). Each takes a structure that contains its own size, so a
// library accepts structures of older and newer headers.
#pragma once

#include <cupti.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>

#include <string>

namespace stepscope {

struct CounterFunctions {
  decltype(&cuptiProfilerInitialize) initialize = nullptr;
  decltype(&cuptiProfilerDeInitialize) deinitialize = nullptr;
  decltype(&cuptiProfilerDeviceSupported) device_supported = nullptr;
  decltype(&cuptiDeviceGetChipName) get_chip_name = nullptr;

  // They turn names of metrics into a configuration, and counts into values.
  decltype(&cuptiProfilerHostInitialize) host_initialize = nullptr;
  decltype(&cuptiProfilerHostDeinitialize) host_deinitialize = nullptr;
  decltype(&cuptiProfilerHostConfigAddMetrics) add_metrics = nullptr;
  decltype(&cuptiProfilerHostGetConfigImageSize) get_config_size = nullptr;
  decltype(&cuptiProfilerHostGetConfigImage) get_config = nullptr;
  decltype(&cuptiProfilerHostGetNumOfPasses) get_passes = nullptr;
  decltype(&cuptiProfilerHostEvaluateToGpuValues) evaluate = nullptr;

  // They do the sampling.
  decltype(&cuptiPmSamplingGetCounterAvailability) get_availability = nullptr;
  decltype(&cuptiPmSamplingEnable) enable = nullptr;
  decltype(&cuptiPmSamplingDisable) disable = nullptr;
  decltype(&cuptiPmSamplingSetConfig) set_config = nullptr;
  decltype(&cuptiPmSamplingGetCounterDataSize) get_data_size = nullptr;
  decltype(&cuptiPmSamplingCounterDataImageInitialize) initialize_data =
      nullptr;
  decltype(&cuptiPmSamplingStart) start = nullptr;
  decltype(&cuptiPmSamplingStop) stop = nullptr;
  decltype(&cuptiPmSamplingDecodeData) decode = nullptr;
  decltype(&cuptiPmSamplingGetCounterDataInfo) get_data_info = nullptr;
  decltype(&cuptiPmSamplingCounterDataGetSampleInfo) get_sample_info = nullptr;

  // Looks up all functions in an opened library. Returns the name of the first
  // missing one, or "" if the library has them all.
  std::string Resolve(void* library);
};

}  // namespace stepscope
