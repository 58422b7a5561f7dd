// The lines that `stepscope doctor` prints about this machine: one for each
// thing that recording and viewing need, with the remedy if it is missing.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/doctor.h>

#include <string>
#include <vector>

#include "doctor/python_packages.h"

namespace stepscope {

// A Python interpreter, as the user would type it, and its installed packages.
struct AskedPython {
  std::string python;
  absl::StatusOr<PythonPackages> packages;
};

// Returns the lines about torch, and about TensorBoard and its plugins. Both
// may be in the same Python or in two.
std::vector<DoctorLine> PackageLines(const AskedPython& torch,
                                     const AskedPython& viewers);

// Returns the lines about the GPU. In a build without CUPTI one line says so.
// `torch_folder` is where torch's CUPTI is looked for; may be empty.
std::vector<DoctorLine> DeviceLines(const std::string& torch_folder);

// Returns one line of text for each: "ok", "fix" or "--" (could not be checked,
// or no_gpu), the topic, what was found and the remedy.
std::string DoctorText(const std::vector<DoctorLine>& lines);

}  // namespace stepscope
