#include "cupti_doctor.h"

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "cupti_attachment.h"
#include "cupti_switches.h"

namespace stepscope {
namespace {

constexpr const char* kSkipped = "skipped: see above";

// The driver's own switch, readable without any library.
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

// Splits a message "CUPTI: what: remedy" into the two columns. CuptiError()
// puts the remedy behind the code: "CUPTI: cannot subscribe: NAME (code 39):
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

}  // namespace

// Each line depends on the one before: without a driver or a library, the
// others cannot be tried.
std::vector<DoctorLine> CheckCupti(const CuptiSources& sources) {
  std::vector<DoctorLine> lines;
  auto driver = sources.driver();
  if (driver.ok()) {
    lines.push_back(DriverLine(**driver));
  } else {
    lines.push_back({.topic = "driver",
                     .found = "no NVIDIA driver found",
                     .remedy = "to record a GPU, install NVIDIA's driver or "
                               "start the container with --gpus all; the CPU "
                               "is recorded all the same",
                     .ok = false,
                     .no_gpu = true});
  }
  auto cupti = sources.cupti();
  if (!cupti.ok()) {
    lines.push_back(Failed("CUPTI", cupti.status()));
  } else {
    lines.push_back({.topic = "CUPTI",
                     .found = (*cupti)->library() + " (CUDA " +
                              CudaVersionOf((*cupti)->version()) + ")",
                     .remedy = "",
                     .ok = true});
  }
  if (!lines.front().ok || !cupti.ok()) {
    lines.push_back({"subscription", kSkipped, "", false});
    lines.push_back({"permissions", kSkipped, "", false});
    // Without a GPU, nobody misses what follows.
    for (DoctorLine& line : lines)
      line.no_gpu = !line.ok && lines.front().no_gpu;
    return lines;
  }
  // Leaves nothing in the caller's process. A detachment would wait for a CUDA
  // call that this process never makes.
  CuptiAttachment attachment(*std::move(cupti), /*detach=*/false);
  if (absl::Status held = attachment.Hold(); !held.ok()) {
    lines.push_back(Failed("subscription", held));
    lines.push_back({"permissions", kSkipped, "", false});
    return lines;
  }
  lines.push_back({"subscription", "free", "", true});
  const std::string admin_only = AdminOnly();
  std::vector<Loss> losses;
  CuptiSwitches switches(attachment.api());
  if (absl::Status on = switches.On({}, &losses); !on.ok()) {
    lines.push_back(Failed("permissions", on));
    return lines;
  }
  lines.push_back({"permissions",
                   "GPU records can be collected" +
                       (admin_only.empty() ? "" : " (" + admin_only + ")"),
                   "", true});
  return lines;
}

std::vector<DoctorLine> CheckCupti(const std::string& torch_folder) {
  return CheckCupti(
      {.driver = [] { return LoadCudaDriver(); },
       .cupti = [&] { return LoadCupti({.torch_folder = torch_folder}); }});
}

}  // namespace stepscope
