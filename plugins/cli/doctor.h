// `stepscope doctor`: whether this machine has what a recording and its views
// need, a line for each thing, with the remedy where it is missing.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/doctor.h>

#include <string>
#include <vector>

#include "arguments.h"
#include "python_packages.h"

namespace stepscope {

// A Python, as the user would type it, and its answer.
struct AskedPython {
  std::string python;
  absl::StatusOr<PythonPackages> packages;
};

// The lines about torch, and about TensorBoard and its plugins: one Python may
// hold both, or each its own.
std::vector<DoctorLine> PackageLines(const AskedPython& torch,
                                     const AskedPython& viewers);

// The lines about the GPU; one that says so where this build has no CUPTI.
std::vector<DoctorLine> DeviceLines(const std::string& torch_folder);

// One line of text each: whether it is well, what it is about, what was found,
// what to do.
std::string DoctorText(const std::vector<DoctorLine>& lines);

// Returns the exit status: 0 if all is well, 1 if something is missing or the
// lines cannot be written.
int RunDoctor(const Arguments& arguments);

}  // namespace stepscope
