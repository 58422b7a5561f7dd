#include "counter_functions.h"

#include <dlfcn.h>

#include <type_traits>

namespace stepscope {

// All functions are required, because without one of them nothing can be
// sampled. The newest of them came with CUDA 12.6.
std::string CounterFunctions::Resolve(void* library) {
  std::string missing;
  const auto get = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(
        dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  get(initialize, "cuptiProfilerInitialize");
  get(deinitialize, "cuptiProfilerDeInitialize");
  get(device_supported, "cuptiProfilerDeviceSupported");
  get(get_chip_name, "cuptiDeviceGetChipName");
  get(host_initialize, "cuptiProfilerHostInitialize");
  get(host_deinitialize, "cuptiProfilerHostDeinitialize");
  get(add_metrics, "cuptiProfilerHostConfigAddMetrics");
  get(get_config_size, "cuptiProfilerHostGetConfigImageSize");
  get(get_config, "cuptiProfilerHostGetConfigImage");
  get(get_passes, "cuptiProfilerHostGetNumOfPasses");
  get(evaluate, "cuptiProfilerHostEvaluateToGpuValues");
  get(get_availability, "cuptiPmSamplingGetCounterAvailability");
  get(enable, "cuptiPmSamplingEnable");
  get(disable, "cuptiPmSamplingDisable");
  get(set_config, "cuptiPmSamplingSetConfig");
  get(get_data_size, "cuptiPmSamplingGetCounterDataSize");
  get(initialize_data, "cuptiPmSamplingCounterDataImageInitialize");
  get(start, "cuptiPmSamplingStart");
  get(stop, "cuptiPmSamplingStop");
  get(decode, "cuptiPmSamplingDecodeData");
  get(get_data_info, "cuptiPmSamplingGetCounterDataInfo");
  get(get_sample_info, "cuptiPmSamplingCounterDataGetSampleInfo");
  return missing;
}

}  // namespace stepscope
