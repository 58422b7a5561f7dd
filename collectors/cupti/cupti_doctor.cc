#include "cupti_doctor.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "buffer_pool.h"
#include "counters/device_counters.h"
#include "cupti_attachment.h"
#include "cupti_switches.h"

namespace stepscope {
namespace {

constexpr const char* kSkipped = "skipped: see above";
// CUDA 13.0 before its Update 1 (release notes of CUPTI 13.0 Update 1).
constexpr uint32_t kCuptiMayHang = 130000;

// The driver's own switch, which can be read without any library.
std::string AdminOnly() {
  std::FILE* file = std::fopen("/proc/driver/nvidia/params", "r");
  if (file == nullptr) return "";
  std::string setting;
  char line[256];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    const std::string_view text = line;
    if (!text.starts_with("RmProfilingAdminOnly:")) continue;
    setting = text.find('1') == std::string_view::npos
                  ? "the driver lets every user profile"
                  : "the driver lets only administrators profile";
  }
  std::fclose(file);
  return setting;
}

// Splits a message "CUPTI: what: remedy" into two columns. CuptiError() puts
// the remedy behind the code: "CUPTI: cannot subscribe: NAME (code 39):
// remedy".
std::pair<std::string, std::string> Split(const absl::Status& status) {
  std::string text(status.message().data(), status.message().size());
  if (text.starts_with("CUPTI: ")) text.erase(0, 7);
  const size_t at = text.rfind("): ");
  if (at != std::string::npos) {
    return {text.substr(0, at + 1), text.substr(at + 3)};
  }
  const size_t semicolon = text.find("; ");
  if (semicolon != std::string::npos) {
    return {text.substr(0, semicolon), text.substr(semicolon + 2)};
  }
  return {text, ""};
}

DoctorLine Failed(std::string topic, const absl::Status& status) {
  auto [found, remedy] = Split(status);
  return {.topic = std::move(topic),
          .found = std::move(found),
          .remedy = std::move(remedy),
          .ok = false};
}

DoctorLine DriverLine(CudaDriver& driver) {
  const int version = driver.version();
  DoctorLine line = {.topic = "driver",
                     .found = "CUDA " + std::to_string(version / 1000) + "." +
                              std::to_string(version % 1000 / 10),
                     .remedy = "",
                     .ok = true};
  constexpr const char* kRemedy =
      "no device can be used: check nvidia-smi, CUDA_VISIBLE_DEVICES, and "
      "that the container was given the GPU";
  if (const absl::Status started = driver.Initialize(); !started.ok()) {
    line.found +=
        ", " + std::string(started.message().data(), started.message().size());
    line.remedy = kRemedy;
    line.ok = false;
    line.no_gpu = absl::IsNotFound(started);
    return line;
  }
  const std::vector<DeviceLimits> devices = driver.Devices();
  line.found += ", " + std::to_string(devices.size()) +
                (devices.size() == 1 ? " device" : " devices");
  if (!devices.empty()) line.found += " (" + devices.front().name + ")";
  line.ok = !devices.empty();
  if (!line.ok) line.remedy = kRemedy;
  line.no_gpu = !line.ok;
  return line;
}

// Checks the driver before any other library is loaded, because libcupti of
// CUDA 13.2 crashes without a driver.
DoctorLine CheckDriver(const CuptiSources& sources,
                       std::vector<DeviceLimits>* devices) {
  auto driver = sources.driver();
  if (driver.ok()) {
    DoctorLine line = DriverLine(**driver);
    if (line.ok) *devices = (*driver)->Devices();
    return line;
  }
  return {.topic = "driver",
          .found = "no NVIDIA driver found",
          .remedy =
              "to record a GPU, install NVIDIA's driver or start the "
              "container with --gpus all; the CPU is recorded all the "
              "same",
          .ok = false,
          .no_gpu = true};
}

DoctorLine CuptiLine(const CuptiApi& api) {
  DoctorLine line = {
      .topic = "CUPTI",
      .found = api.library() + " (CUDA " + CudaVersionOf(api.version()) + ")",
      .remedy = "",
      .ok = true};
  if (api.version() == kCuptiMayHang) {
    line.found +=
        "; NVIDIA lists a possible deadlock as a recording ends, fixed in 13.0 "
        "Update 1: pip install nvidia-cuda-cupti==13.0.85";
  }
  return line;
}

std::string Milliseconds(std::chrono::steady_clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f ms",
                std::chrono::duration<double, std::milli>(time).count());
  return text;
}

// Does what a window does at its start and end, and reports how long that
// takes.
DoctorLine CheckPermissions(CuptiApi& api) {
  const auto begin = std::chrono::steady_clock::now();
  // Needed first, because a kind may request a buffer as soon as it is on.
  ProcessPool().Open(int64_t{4} << 20, int64_t{1} << 20,
                     {.discard = api.version() < kCuptiTakesNullBuffers});
  std::vector<Loss> losses;
  CuptiSwitches switches(api);
  const absl::Status on = switches.On({}, &losses);
  const size_t count = switches.count();
  const auto switched = std::chrono::steady_clock::now();
  switches.Off(nullptr);
  (void)api.FlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  ProcessPool().Return(ProcessPool().Close());
  ProcessPool().Trim();
  const auto end = std::chrono::steady_clock::now();
  if (!on.ok()) return Failed("permissions", on);
  const std::string admin_only = AdminOnly();
  return {.topic = "permissions",
          .found = "GPU records can be collected" +
                   (admin_only.empty() ? "" : " (" + admin_only + ")") + "; " +
                   std::to_string(count) + " switches, on in " +
                   Milliseconds(switched - begin) + ", off in " +
                   Milliseconds(end - switched),
          .remedy = "",
          .ok = true};
}

// Claims the counters of the first device and releases them. A failure is not a
// fault, because counters are used only if STEPSCOPE_GPU_COUNTERS is set.
DoctorLine CountersLine(CuptiApi& api, const DeviceLimits& device) {
  DoctorLine line = {
      .topic = "counters", .found = "", .remedy = "", .ok = true};
  std::string missing;
  if (api.counters(&missing) == nullptr) {
    line.found = "hardware counters cannot be sampled: this CUPTI has no " +
                 missing + " (CUDA 12.6 and later have)";
    return line;
  }
  constexpr int32_t kHz = 1000;
  DeviceCounters counters(api, device, kHz);
  if (const absl::Status opened = counters.Open(); !opened.ok()) {
    line = Failed("counters", opened);
    line.found = "hardware counters cannot be sampled: " + line.found;
    line.ok = true;
    return line;
  }
  line.found = "hardware counters can be sampled (STEPSCOPE_GPU_COUNTERS)";
  if (const std::string none = counters.missing(); !none.empty()) {
    line.found += ", without " + none;
  }
  return line;
}

// A failure is not a fault: without NVML a recording has CUPTI's clocks or
// none.
DoctorLine CheckClocks(const CuptiSources& sources,
                       const std::vector<DeviceLimits>& devices) {
  DoctorLine line = {.topic = "clocks", .found = "", .remedy = "", .ok = true};
  auto nvml = sources.nvml();
  if (!nvml.ok()) {
    line.found = std::string(nvml.status().message().data(),
                             nvml.status().message().size());
    return line;
  }
  const auto handle = (*nvml)->Find(devices.front().uuid);
  if (handle == nullptr) {
    line.found = "NVML does not know device 0";
    return line;
  }
  const NvmlReading reading = (*nvml)->Read(handle, /*with_links=*/false);
  line.found = "NVML: SM clock " + std::to_string(reading.sm_clock_mhz) +
               " MHz, " + std::to_string(reading.power_mw / 1000) + " W, " +
               std::to_string(reading.temperature_c) + " C";
  return line;
}

}  // namespace

// Each check depends on the one before: without a driver or a library, the
// others cannot be tried.
std::vector<DoctorLine> CheckCupti(const CuptiSources& sources) {
  std::vector<DoctorLine> lines;
  // Topics that cannot be tried. Without a GPU this is not a fault.
  const auto skip = [&](std::initializer_list<const char*> topics) {
    for (const char* topic : topics) {
      lines.push_back({.topic = topic,
                       .found = kSkipped,
                       .remedy = "",
                       .ok = false,
                       .no_gpu = lines.front().no_gpu});
    }
  };
  std::vector<DeviceLimits> devices;
  lines.push_back(CheckDriver(sources, &devices));
  if (!lines.front().ok) {
    skip({"CUPTI", "subscription", "permissions", "counters"});
    return lines;
  }
  if (sources.nvml) lines.push_back(CheckClocks(sources, devices));
  auto cupti = sources.cupti();
  if (!cupti.ok()) {
    lines.push_back(Failed("CUPTI", cupti.status()));
    skip({"subscription", "permissions", "counters"});
    return lines;
  }
  lines.push_back(CuptiLine(**cupti));
  // `detach` is false, because a detachment would wait for a CUDA call, which
  // this process never makes.
  CuptiAttachment attachment(*std::move(cupti), /*detach=*/false);
  if (absl::Status held = attachment.Hold(); !held.ok()) {
    lines.push_back(Failed("subscription", held));
    skip({"permissions", "counters"});
    return lines;
  }
  lines.push_back({"subscription", "free", "", true});
  lines.push_back(CheckPermissions(attachment.api()));
  // This comes last, because releasing counters may detach CUPTI.
  lines.push_back(CountersLine(attachment.api(), devices.front()));
  return lines;
}

void AddTorchMonitor(const std::string& torch_folder,
                     std::vector<DoctorLine>* lines) {
  std::error_code error;
  const auto monitor =
      std::filesystem::path(torch_folder).parent_path() / "profiler/_cupti";
  if (torch_folder.empty() || !std::filesystem::exists(monitor, error)) return;
  lines->push_back(
      {.topic = "other tools",
       .found = "torch.profiler._cupti is installed: in a process where its "
                "monitor runs, stepscope cannot record the GPU",
       .remedy = "",
       .ok = true});
}

std::vector<DoctorLine> CheckCupti(const std::string& torch_folder) {
  std::vector<DoctorLine> lines = CheckCupti(
      {.driver = [] { return LoadCudaDriver(); },
       .cupti = [&] { return LoadCupti({.torch_folder = torch_folder}); },
       .nvml = [] { return LoadNvml(); }});
  AddTorchMonitor(torch_folder, &lines);
  return lines;
}

}  // namespace stepscope
