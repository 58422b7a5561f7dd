// libfakecupti.so: FakeCupti behind CUPTI's own C symbols, and a driver with
// one device behind libcuda's symbols. The loader and whole programs can run
// with it without a GPU. A test reaches the fake through FakeCuptiInLibrary().
//
// Environment variables, read once: FAKE_CUPTI_VERSION is the result of
// cuptiGetVersion(); FAKE_CUPTI_HOLDER is a tool that has already subscribed.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "fakes/fake_counters.h"
#include "fakes/fake_cupti.h"

namespace {

stepscope::FakeCupti& Fake() {
  static stepscope::FakeCupti* const fake = [] {
    const char* version = std::getenv("FAKE_CUPTI_VERSION");
    auto* made = new stepscope::FakeCupti(
        version == nullptr
            ? 130001
            : static_cast<uint32_t>(std::strtoul(version, nullptr, 10)));
    stepscope::FakeCounters::Get().Reset(made);
    if (const char* holder = std::getenv("FAKE_CUPTI_HOLDER")) {
      made->HoldBy(holder);
    }
    return made;
  }();
  return *fake;
}

// Returns the only context of the only device.
CUcontext Context() { return reinterpret_cast<CUcontext>(&Fake()); }

}  // namespace

extern "C" {

stepscope::FakeCupti* FakeCuptiInLibrary() { return &Fake(); }

// Defined in the library that also has a device (fake_torch_device.cc).
__attribute__((weak)) void FakeDeviceBegin();

CUptiResult cuptiGetVersion(uint32_t* version) {
  *version = Fake().version();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber,
                           CUpti_CallbackFunc callback, void* user) {
  std::string holder;
  return Fake().Subscribe(subscriber, callback, user, &holder);
}
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber,
                              CUpti_CallbackFunc callback, void* user,
                              CUpti_SubscriberParams* params) {
  if (params != nullptr &&
      params->structSize != CUpti_SubscriberParams_STRUCT_SIZE) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (FakeDeviceBegin != nullptr) FakeDeviceBegin();
  std::string holder;
  const CUptiResult result =
      Fake().Subscribe(subscriber, callback, user, &holder);
  if (params != nullptr && params->oldSubscriberName != nullptr) {
    std::snprintf(params->oldSubscriberName, params->oldSubscriberSize, "%s",
                  holder.c_str());
  }
  return result;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  return Fake().Unsubscribe(subscriber);
}
CUptiResult cuptiEnableDomain(uint32_t on, CUpti_SubscriberHandle subscriber,
                              CUpti_CallbackDomain domain) {
  return Fake().EnableDomain(on != 0, subscriber, domain);
}
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id,
                                 const char** name) {
  return Fake().GetCallbackName(domain, id, name);
}
CUptiResult cuptiEnableCallback(uint32_t on, CUpti_SubscriberHandle subscriber,
                                CUpti_CallbackDomain domain,
                                CUpti_CallbackId id) {
  return Fake().EnableCallback(on != 0, subscriber, domain, id);
}
CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t* id) {
  return Fake().GetGraphNodeId(node, id);
}
CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
  return Fake().SetThreadIdType(type);
}
CUptiResult cuptiActivityRegisterCallbacks(
    CUpti_BuffersCallbackRequestFunc request,
    CUpti_BuffersCallbackCompleteFunc complete) {
  return Fake().RegisterCallbacks(request, complete);
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  return Fake().Enable(kind);
}
CUptiResult cuptiActivityEnableAndDump(CUpti_ActivityKind kind) {
  return Fake().Enable(kind, "EnableAndDump");
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  return Fake().Disable(kind);
}
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t on) {
  return Fake().EnableCall(on != 0, CUPTI_CB_DOMAIN_RUNTIME_API, id);
}
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t on) {
  return Fake().EnableCall(on != 0, CUPTI_CB_DOMAIN_DRIVER_API, id);
}
CUptiResult cuptiActivityEnableLatencyTimestamps(uint8_t on) {
  return Fake().EnableLatencyTimestamps(on != 0);
}
CUptiResult cuptiActivityEnableAllSyncRecords(uint8_t on) {
  return Fake().EnableAllSyncRecords(on != 0);
}
CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  return Fake().FlushAll(flag);
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t,
                                              size_t* dropped) {
  return Fake().GetNumDroppedRecords(dropped);
}
CUptiResult cuptiGetTimestamp(uint64_t* timestamp_ns) {
  return Fake().GetTimestamp(timestamp_ns);
}
CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes,
                                       CUpti_Activity** record) {
  return stepscope::StepRecord(buffer, valid_bytes, Fake().version(), record);
}
CUptiResult cuptiFinalize() { return Fake().Finalize(); }
CUptiResult cuptiGetResultString(CUptiResult code, const char** text) {
  if (code == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
    *text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
    return CUPTI_SUCCESS;
  }
  return CUPTI_ERROR_INVALID_PARAMETER;
}

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = Context();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  *context = Context();
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = Context();
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  std::snprintf(name, static_cast<size_t>(bytes), "%s", "Fake A100");
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) {
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(i + 1);
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = size_t{40} << 30;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                              CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *value = 1410000;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      *value = 1215000;
      break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      *value = 5120;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 8;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 108;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *value = 2048;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      *value = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
      *value = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *value = 164 << 10;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = size_t{30} << 30;
  *total = size_t{40} << 30;
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

}  // extern "C"
