// Exports FakeCounters in libfakecupti.so under CUPTI's own C symbols.
#include "fakes/fake_counters.h"

namespace {

const stepscope::CounterFunctions& Fake() {
  return stepscope::FakeCounters::Functions();
}

}  // namespace

extern "C" {

stepscope::FakeCounters* FakeCountersInLibrary() {
  return &stepscope::FakeCounters::Get();
}

CUptiResult cuptiProfilerInitialize(CUpti_Profiler_Initialize_Params* params) {
  return Fake().initialize(params);
}
CUptiResult cuptiProfilerDeInitialize(
    CUpti_Profiler_DeInitialize_Params* params) {
  return Fake().deinitialize(params);
}
CUptiResult cuptiProfilerDeviceSupported(
    CUpti_Profiler_DeviceSupported_Params* params) {
  return Fake().device_supported(params);
}
CUptiResult cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params* params) {
  return Fake().get_chip_name(params);
}
CUptiResult cuptiProfilerHostInitialize(
    CUpti_Profiler_Host_Initialize_Params* params) {
  return Fake().host_initialize(params);
}
CUptiResult cuptiProfilerHostDeinitialize(
    CUpti_Profiler_Host_Deinitialize_Params* params) {
  return Fake().host_deinitialize(params);
}
CUptiResult cuptiProfilerHostConfigAddMetrics(
    CUpti_Profiler_Host_ConfigAddMetrics_Params* params) {
  return Fake().add_metrics(params);
}
CUptiResult cuptiProfilerHostGetConfigImageSize(
    CUpti_Profiler_Host_GetConfigImageSize_Params* params) {
  return Fake().get_config_size(params);
}
CUptiResult cuptiProfilerHostGetConfigImage(
    CUpti_Profiler_Host_GetConfigImage_Params* params) {
  return Fake().get_config(params);
}
CUptiResult cuptiProfilerHostGetNumOfPasses(
    CUpti_Profiler_Host_GetNumOfPasses_Params* params) {
  return Fake().get_passes(params);
}
CUptiResult cuptiProfilerHostEvaluateToGpuValues(
    CUpti_Profiler_Host_EvaluateToGpuValues_Params* params) {
  return Fake().evaluate(params);
}
CUptiResult cuptiPmSamplingGetCounterAvailability(
    CUpti_PmSampling_GetCounterAvailability_Params* params) {
  return Fake().get_availability(params);
}
CUptiResult cuptiPmSamplingEnable(CUpti_PmSampling_Enable_Params* params) {
  return Fake().enable(params);
}
CUptiResult cuptiPmSamplingDisable(CUpti_PmSampling_Disable_Params* params) {
  return Fake().disable(params);
}
CUptiResult cuptiPmSamplingSetConfig(
    CUpti_PmSampling_SetConfig_Params* params) {
  return Fake().set_config(params);
}
CUptiResult cuptiPmSamplingGetCounterDataSize(
    CUpti_PmSampling_GetCounterDataSize_Params* params) {
  return Fake().get_data_size(params);
}
CUptiResult cuptiPmSamplingCounterDataImageInitialize(
    CUpti_PmSampling_CounterDataImage_Initialize_Params* params) {
  return Fake().initialize_data(params);
}
CUptiResult cuptiPmSamplingStart(CUpti_PmSampling_Start_Params* params) {
  return Fake().start(params);
}
CUptiResult cuptiPmSamplingStop(CUpti_PmSampling_Stop_Params* params) {
  return Fake().stop(params);
}
CUptiResult cuptiPmSamplingDecodeData(
    CUpti_PmSampling_DecodeData_Params* params) {
  return Fake().decode(params);
}
CUptiResult cuptiPmSamplingGetCounterDataInfo(
    CUpti_PmSampling_GetCounterDataInfo_Params* params) {
  return Fake().get_data_info(params);
}
CUptiResult cuptiPmSamplingCounterDataGetSampleInfo(
    CUpti_PmSampling_CounterData_GetSampleInfo_Params* params) {
  return Fake().get_sample_info(params);
}

}  // extern "C"
