// CUPTI functions to which LibTorch is linked but that stepscope never calls. A
// library that replaces libcupti.so.13 must have them.
#include <cupti.h>

extern "C" {

CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t) {
  return CUPTI_ERROR_NOT_SUPPORTED;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind,
                                                  uint64_t*) {
  return CUPTI_ERROR_NOT_SUPPORTED;
}
CUptiResult cuptiActivityPushExternalCorrelationId(
    CUpti_ExternalCorrelationKind, uint64_t) {
  return CUPTI_ERROR_NOT_SUPPORTED;
}
CUptiResult cuptiActivityRegisterTimestampCallback(
    CUpti_TimestampCallbackFunc) {
  return CUPTI_ERROR_NOT_SUPPORTED;
}
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute, size_t*, void*) {
  return CUPTI_ERROR_NOT_SUPPORTED;
}

}  // extern "C"
