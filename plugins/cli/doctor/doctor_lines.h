// What `stepscope doctor` prints about this machine: a line for each thing that
// recording and viewing need, with the remedy where it is missing.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/doctor.h>

#include <string>
#include <vector>

#include "doctor/python_packages.h"

namespace stepscope {

// A Python, as the user would type it, and what it has installed.
struct AskedPython {
  std::string python;
  absl::StatusOr<PythonPackages> packages;
};

// The lines about torch, and about TensorBoard and its plugins. One Python may
// have both, or each its own.
std::vector<DoctorLine> PackageLines(const AskedPython& torch,
                                     const AskedPython& viewers);

// The lines about the GPU. In a build without CUPTI one line says so.
// `torch_folder` is where the CUPTI of torch is looked for; may be empty.
std::vector<DoctorLine> DeviceLines(const std::string& torch_folder);

// One line of text each: "ok", "fix" or "--" (could not be checked, or no_gpu),
// the topic, what was found and the remedy.
std::string DoctorText(const std::vector<DoctorLine>& lines);

}  // namespace stepscope
