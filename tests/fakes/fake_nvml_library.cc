// The part of libfakecupti.so that replaces libnvidia-ml.so.1: one device with
// the fake driver's number, and a MIG instance of it.
#include <cstdint>
#include <cstring>

namespace {

int g_device = 0;
int g_instance = 0;
constexpr int kInvalid = 2, kNotSupported = 3, kNotFound = 6;

struct Value {
  unsigned field;
  unsigned scope;
  long long time_us;
  long long latency_us;
  int type;
  int result;
  unsigned long long value;
};

int Give(const void* device, unsigned* to, unsigned value) {
  if (device != &g_device) return kInvalid;
  *to = value;
  return 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (std::strcmp(uuid, "GPU-01020304-0506-0708-090a-0b0c0d0e0f10") == 0) {
    *device = &g_device;
  } else if (std::strcmp(uuid, "MIG-ff020304-0506-0708-090a-0b0c0d0e0f10") ==
             0) {
    *device = &g_instance;
  } else {
    return kNotFound;
  }
  return 0;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* instance,
                                                 void** device) {
  if (instance != &g_instance) return kInvalid;
  *device = &g_device;
  return 0;
}
int nvmlDeviceGetClockInfo(void* device, int clock, unsigned* mhz) {
  return Give(device, mhz, clock == 1 ? 1410 : 1215);
}
int nvmlDeviceGetTemperature(void* device, int, unsigned* celsius) {
  return Give(device, celsius, 61);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  return Give(device, milliwatts, 312'000);
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  return Give(device, milliwatts, 400'000);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device,
                                              unsigned long long* reasons) {
  if (device != &g_device) return kInvalid;
  *reasons = 4;
  return 0;
}
int nvmlDeviceGetFanSpeed(void*, unsigned*) { return kNotSupported; }
int nvmlDeviceGetPcieThroughput(void* device, int direction,
                                unsigned* kilobytes_per_s) {
  return Give(device, kilobytes_per_s, direction == 0 ? 1000 : 12'000'000);
}
int nvmlDeviceGetFieldValues(void* device, int count, Value* values) {
  if (device != &g_device) return kInvalid;
  for (int i = 0; i < count; ++i) {
    values[i].result = values[i].scope == 0xffffffffu ? 0 : kInvalid;
    values[i].type = 3;  // unsigned long long
    values[i].value = values[i].field == 138 ? 2048 : 4096;
  }
  return 0;
}

}  // extern "C"
