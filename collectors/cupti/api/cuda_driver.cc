#include "cuda_driver.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>

#include <cstring>

namespace stepscope {
namespace {

// cuda.h renames functions to their versions ("cuMemGetInfo_v2"). Here are the
// names as the library has them.
struct DriverFunctions {
  CUresult (*init)(unsigned) = nullptr;
  CUresult (*ctx_get_current)(CUcontext*) = nullptr;
  CUresult (*ctx_get_device)(CUdevice*) = nullptr;
  CUresult (*ctx_push)(CUcontext) = nullptr;
  CUresult (*ctx_pop)(CUcontext*) = nullptr;
  CUresult (*ctx_synchronize)() = nullptr;
  CUresult (*primary_state)(CUdevice, unsigned*, int*) = nullptr;
  CUresult (*primary_retain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*primary_release)(CUdevice) = nullptr;
  CUresult (*device_count)(int*) = nullptr;
  CUresult (*device_get)(CUdevice*, int) = nullptr;
  CUresult (*device_name)(char*, int, CUdevice) = nullptr;
  CUresult (*device_memory)(size_t*, CUdevice) = nullptr;
  CUresult (*device_attribute)(int*, CUdevice_attribute, CUdevice) = nullptr;
  CUresult (*memory_info)(size_t*, size_t*) = nullptr;
  CUresult (*driver_version)(int*) = nullptr;
  CUresult (*device_uuid)(CUuuid*, CUdevice) = nullptr;

  // True if the library has all functions, as drivers for CUDA 12 have.
  bool Resolve(void* library) {
    bool all = true;
    const auto get = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(
          dlsym(library, name));
      all = all && function != nullptr;
    };
    get(init, "cuInit");
    get(ctx_get_current, "cuCtxGetCurrent");
    get(ctx_get_device, "cuCtxGetDevice");
    get(ctx_push, "cuCtxPushCurrent_v2");
    get(ctx_pop, "cuCtxPopCurrent_v2");
    get(ctx_synchronize, "cuCtxSynchronize");
    get(primary_state, "cuDevicePrimaryCtxGetState");
    get(primary_retain, "cuDevicePrimaryCtxRetain");
    get(primary_release, "cuDevicePrimaryCtxRelease_v2");
    get(device_count, "cuDeviceGetCount");
    get(device_get, "cuDeviceGet");
    get(device_name, "cuDeviceGetName");
    get(device_memory, "cuDeviceTotalMem_v2");
    get(device_attribute, "cuDeviceGetAttribute");
    get(memory_info, "cuMemGetInfo_v2");
    get(driver_version, "cuDriverGetVersion");
    get(device_uuid, "cuDeviceGetUuid_v2");  // with MIG: of the instance
    return all;
  }
};

class LoadedDriver : public CudaDriver {
 public:
  explicit LoadedDriver(const DriverFunctions& f) : f_(f) {}

  absl::Status Initialize() override {
    const CUresult result = f_.init(0);
    if (result == CUDA_SUCCESS) return absl::OkStatus();
    const std::string message = "cuInit gave " + std::to_string(result);
    return result == CUDA_ERROR_NO_DEVICE ? absl::NotFoundError(message)
                                          : absl::UnavailableError(message);
  }

  // Does not initialise CUDA: before cuInit(), cuCtxGetCurrent() returns an
  // error.
  absl::Status InUse() const override {
    CUcontext context = nullptr;
    const CUresult result = f_.ctx_get_current(&context);
    if (result == CUDA_SUCCESS) return absl::OkStatus();
    if (result == CUDA_ERROR_NOT_INITIALIZED) {
      return absl::UnavailableError(
          "CUPTI: this program has not used CUDA yet: recording CPU only; "
          "tried again in the next cycle");
    }
    return absl::UnavailableError(
        "CUPTI: the NVIDIA driver is not usable (cuCtxGetCurrent gave " +
        std::to_string(result) +
        "; nvidia-smi may say why): recording CPU "
        "only");
  }

  int version() const override {
    int version = 0;
    return f_.driver_version(&version) == CUDA_SUCCESS ? version : 0;
  }

  std::vector<DeviceLimits> Devices() const override {
    std::vector<DeviceLimits> devices;
    int count = 0;
    if (f_.device_count(&count) != CUDA_SUCCESS) return devices;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      CUdevice device = 0;
      if (f_.device_get(&device, ordinal) != CUDA_SUCCESS) continue;
      devices.push_back(LimitsOf(device, ordinal));
    }
    return devices;
  }

  // Waits for all devices, because a window ends for all of them. If one fails,
  // the others are still waited for; the first error is returned.
  absl::Status Synchronize() override {
    int count = 0;
    CUresult first = f_.device_count(&count);
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      const CUresult result = SynchronizeDevice(ordinal);
      if (first == CUDA_SUCCESS) first = result;
    }
    if (first == CUDA_SUCCESS) return absl::OkStatus();
    return absl::InternalError(
        "CUPTI: cannot wait for the device at the end of the window (CUDA "
        "error " +
        std::to_string(first) + "); its last kernels may be missing");
  }

  bool MemoryOfCurrentDevice(int32_t* device, int64_t* free_bytes,
                             int64_t* total_bytes) const override {
    CUdevice current = 0;
    size_t free = 0;
    size_t total = 0;
    if (f_.ctx_get_device(&current) != CUDA_SUCCESS ||
        f_.memory_info(&free, &total) != CUDA_SUCCESS) {
      return false;
    }
    *device = current;
    *free_bytes = static_cast<int64_t>(free);
    *total_bytes = static_cast<int64_t>(total);
    return true;
  }

 private:
  // Values that the driver does not return stay 0, which means unknown.
  DeviceLimits LimitsOf(CUdevice device, int ordinal) const {
    const auto attribute = [&](CUdevice_attribute which) {
      int value = 0;
      return f_.device_attribute(&value, which, device) == CUDA_SUCCESS ? value
                                                                        : 0;
    };
    DeviceLimits limits;
    limits.ordinal = ordinal;
    if (CUuuid uuid; f_.device_uuid(&uuid, device) == CUDA_SUCCESS) {
      std::memcpy(limits.uuid.data(), uuid.bytes, limits.uuid.size());
    }
    // Asking for the state does not create a context, unlike using the device.
    unsigned flags = 0;
    int active = 0;
    limits.is_in_use =
        f_.primary_state(device, &flags, &active) == CUDA_SUCCESS &&
        active != 0;
    char name[256] = "";
    if (f_.device_name(name, sizeof(name), device) == CUDA_SUCCESS) {
      limits.name = name;
    }
    size_t memory = 0;
    if (f_.device_memory(&memory, device) == CUDA_SUCCESS) {
      limits.memory_bytes = static_cast<int64_t>(memory);
    }
    limits.clock_khz = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    // Double data rate: two transfers per clock over the bus.
    const int64_t memory_khz = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
    const int64_t bus_bits =
        attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    if (memory_khz > 0 && bus_bits > 0) {
      limits.memory_bandwidth_bytes_per_s =
          memory_khz * 1000 * 2 * (bus_bits / 8);
    }
    limits.compute_major =
        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    limits.compute_minor =
        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    limits.sm_count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    limits.warp_size = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    limits.max_threads_per_sm =
        attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    limits.max_blocks_per_sm =
        attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
    limits.regs_per_sm =
        attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
    limits.regs_per_block =
        attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    limits.shared_bytes_per_sm =
        attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    return limits;
  }

  // Uses the primary context, like the runtime and PyTorch.
  CUresult SynchronizeDevice(int ordinal) {
    CUdevice device = 0;
    unsigned flags = 0;
    int active = 0;
    CUresult result = f_.device_get(&device, ordinal);
    if (result == CUDA_SUCCESS) {
      result = f_.primary_state(device, &flags, &active);
    }
    // Skip an inactive context: retaining it would create it.
    if (result != CUDA_SUCCESS || active == 0) return result;
    CUcontext context = nullptr;
    result = f_.primary_retain(&context, device);
    if (result != CUDA_SUCCESS) return result;
    result = f_.ctx_push(context);
    if (result == CUDA_SUCCESS) {
      result = f_.ctx_synchronize();
      CUcontext popped = nullptr;
      (void)f_.ctx_pop(&popped);
    }
    (void)f_.primary_release(device);
    return result;
  }

  DriverFunctions f_;
};

void* Open(const std::string& path) {
  // RTLD_NODELETE, because the driver cannot be unloaded. RTLD_NOLOAD comes
  // first and finds the copy that the program uses, wherever it is.
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  constexpr const char* kSoname = "libcuda.so.1";
  if (!path.empty()) return dlopen(path.c_str(), kFlags);
  if (void* handle = dlopen(kSoname, kFlags | RTLD_NOLOAD)) return handle;
  if (const char* chosen = getenv("STEPSCOPE_CUDA_LIBRARY")) {
    if (void* handle = dlopen(chosen, kFlags)) return handle;
  }
  return dlopen(kSoname, kFlags);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDriver>> LoadCudaDriver(
    const std::string& path) {
  void* handle = Open(path);
  if (handle == nullptr) {
    return absl::UnavailableError(
        "CUPTI: no NVIDIA driver found: recording CPU only");
  }
  DriverFunctions functions;
  if (!functions.Resolve(handle)) {
    return absl::UnavailableError(
        "CUPTI: the NVIDIA driver is too old for CUDA 12 (a function is "
        "missing from libcuda.so.1); update it: recording CPU only");
  }
  return std::unique_ptr<CudaDriver>(std::make_unique<LoadedDriver>(functions));
}

}  // namespace stepscope
