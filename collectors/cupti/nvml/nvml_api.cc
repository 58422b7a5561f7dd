#include "nvml/nvml_api.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <climits>
#include <type_traits>

namespace stepscope {
namespace {

// No wheel contains NVML's header, so the few types that are needed are defined
// here, from the API reference (docs.nvidia.com/deploy/nvml-api).
using Handle = NvmlApi::Handle;
constexpr int kSuccess = 0;
constexpr int kClockSm = 1, kClockMemory = 2;
constexpr int kSensorGpu = 0;
constexpr int kPcieSent = 0, kPcieReceived = 1;
constexpr unsigned kNvlinkSent = 138, kNvlinkReceived = 139;  // in KiB
struct FieldValue {
  unsigned field = 0;
  unsigned scope = UINT_MAX;  // all links
  int64_t time_us = 0;
  int64_t latency_us = 0;
  int type = 0;
  int result = -1;
  union {
    double as_double;
    unsigned as_unsigned;
    uint64_t as_uint64 = 0;
  };
};
static_assert(sizeof(FieldValue) == 40);
constexpr int kTypeUnsigned = 1;

struct NvmlFunctions {
  int (*init)() = nullptr;
  int (*by_uuid)(const char*, Handle*) = nullptr;
  int (*clock)(Handle, int, unsigned*) = nullptr;
  int (*temperature)(Handle, int, unsigned*) = nullptr;
  int (*power)(Handle, unsigned*) = nullptr;
  // The remaining functions are optional.
  int (*power_limit)(Handle, unsigned*) = nullptr;
  int (*throttle)(Handle, unsigned long long*) = nullptr;
  int (*fan)(Handle, unsigned*) = nullptr;
  int (*pcie)(Handle, int, unsigned*) = nullptr;
  int (*fields)(Handle, int, FieldValue*) = nullptr;
  int (*whole_device)(Handle, Handle*) = nullptr;

  bool Resolve(void* library) {
    bool all = true;
    const auto get = [&](auto& function, const char* name, bool required) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(
          dlsym(library, name));
      all = all && (function != nullptr || !required);
    };
    get(init, "nvmlInit_v2", true);
    get(by_uuid, "nvmlDeviceGetHandleByUUID", true);
    get(clock, "nvmlDeviceGetClockInfo", true);
    get(temperature, "nvmlDeviceGetTemperature", true);
    get(power, "nvmlDeviceGetPowerUsage", true);
    get(power_limit, "nvmlDeviceGetEnforcedPowerLimit", false);
    get(throttle, "nvmlDeviceGetCurrentClocksEventReasons", false);
    if (throttle == nullptr) {  // its name until driver 535
      get(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons", false);
    }
    get(fan, "nvmlDeviceGetFanSpeed", false);
    get(pcie, "nvmlDeviceGetPcieThroughput", false);
    get(fields, "nvmlDeviceGetFieldValues", false);
    get(whole_device, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", false);
    return all;
  }
};

// Converts to the Trace's type, in which a negative number means unknown.
int32_t Positive(unsigned value) {
  return static_cast<int32_t>(std::min<unsigned>(value, INT32_MAX));
}

class LoadedNvml : public NvmlApi {
 public:
  explicit LoadedNvml(const NvmlFunctions& f) : f_(f) {}

  Handle Find(const DeviceUuid& uuid) override {
    Handle device = nullptr;
    if (f_.by_uuid(UuidText("GPU-", uuid).c_str(), &device) == kSuccess) {
      return device;
    }
    // A MIG instance has no clocks and no power of its own, so use the whole
    // device.
    Handle whole = nullptr;
    if (f_.whole_device != nullptr &&
        f_.by_uuid(UuidText("MIG-", uuid).c_str(), &device) == kSuccess &&
        f_.whole_device(device, &whole) == kSuccess) {
      return whole;
    }
    return nullptr;
  }

  NvmlReading Read(Handle device, bool with_links) override {
    NvmlReading reading;
    // Values that this device or this driver does not have stay unknown (-1).
    const auto get = [](int32_t* to, auto function, auto... arguments) {
      unsigned value = 0;
      if (function != nullptr && function(arguments..., &value) == kSuccess) {
        *to = Positive(value);
      }
    };
    get(&reading.sm_clock_mhz, f_.clock, device, kClockSm);
    get(&reading.memory_clock_mhz, f_.clock, device, kClockMemory);
    get(&reading.temperature_c, f_.temperature, device, kSensorGpu);
    get(&reading.power_mw, f_.power, device);
    get(&reading.power_limit_mw, f_.power_limit, device);
    get(&reading.fan_percent, f_.fan, device);
    unsigned long long reasons = 0;
    if (f_.throttle != nullptr && f_.throttle(device, &reasons) == kSuccess) {
      reading.throttle_reasons = static_cast<int64_t>(reasons & INT64_MAX);
    }
    if (with_links) ReadLinks(device, &reading);
    return reading;
  }

 private:
  void ReadLinks(Handle device, NvmlReading* reading) {
    const auto pcie = [&](int direction) -> int64_t {
      unsigned kilobytes = 0;  // per second
      if (f_.pcie == nullptr ||
          f_.pcie(device, direction, &kilobytes) != kSuccess) {
        return -1;
      }
      return int64_t{kilobytes} * 1000;
    };
    reading->pcie_sent_bytes_per_s = pcie(kPcieSent);
    reading->pcie_received_bytes_per_s = pcie(kPcieReceived);
    FieldValue values[2];
    values[0].field = kNvlinkSent;
    values[1].field = kNvlinkReceived;
    if (f_.fields == nullptr || f_.fields(device, 2, values) != kSuccess) {
      return;
    }
    const auto bytes = [](const FieldValue& value) -> int64_t {
      if (value.result != kSuccess) return -1;
      const uint64_t kib =
          value.type == kTypeUnsigned ? value.as_unsigned : value.as_uint64;
      return static_cast<int64_t>(std::min<uint64_t>(kib, INT64_MAX >> 10))
             << 10;
    };
    reading->nvlink_sent_bytes = bytes(values[0]);
    reading->nvlink_received_bytes = bytes(values[1]);
  }

  NvmlFunctions f_;
};

}  // namespace

std::string UuidText(const char* prefix, const DeviceUuid& uuid) {
  constexpr const char* kHex = "0123456789abcdef";
  std::string text = prefix;
  for (size_t i = 0; i < uuid.size(); ++i) {
    // The format of nvidia-smi: 8, 4, 4, 4 and 12 digits.
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kHex[uuid[i] >> 4];
    text += kHex[uuid[i] & 15];
  }
  return text;
}

// NVML is never shut down. The program may use the library, too, and NVML's
// count of users would then keep it open in any case.
absl::StatusOr<std::unique_ptr<NvmlApi>> LoadNvml(const std::string& path) {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  std::string file = path;
  if (const char* chosen = getenv("STEPSCOPE_NVML_LIBRARY");
      file.empty() && chosen != nullptr) {
    file = chosen;
  }
  if (file.empty()) file = "libnvidia-ml.so.1";
  void* library = dlopen(file.c_str(), kFlags);
  if (library == nullptr) {
    return absl::UnavailableError(
        "NVML: no " + file +
        ", which comes with the driver (in a container: "
        "NVIDIA_DRIVER_CAPABILITIES needs \"utility\")");
  }
  NvmlFunctions functions;
  if (!functions.Resolve(library)) {
    return absl::UnavailableError("NVML: " + file + " lacks a function");
  }
  if (const int result = functions.init(); result != kSuccess) {
    return absl::UnavailableError("NVML: nvmlInit gave " +
                                  std::to_string(result));
  }
  return std::unique_ptr<NvmlApi>(std::make_unique<LoadedNvml>(functions));
}

}  // namespace stepscope
