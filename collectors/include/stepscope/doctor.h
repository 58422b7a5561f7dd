// What `stepscope doctor` looks at: one line for each thing a recording needs,
// with the remedy where it is missing.
#pragma once

#include <string>
#include <vector>

namespace stepscope {

struct DoctorLine {
  std::string topic;   // "driver", "CUPTI", "permissions", "subscription"
  std::string found;   // what was met: "CUDA 13.0, 1 device", a path
  std::string remedy;  // what to do; empty if there is nothing to do
  bool ok = false;
};

// The driver, CUPTI and its version, the right to profile, and who holds the
// subscription. Initialises CUDA and tries what a recording would do, so call
// it in a process of its own. Lines behind a failure say that they could not be
// looked at. `torch_folder`: of libtorch_cpu.so, beside which NVIDIA's wheels
// are; empty if it is not known.
std::vector<DoctorLine> CheckCupti(const std::string& torch_folder = "");

}  // namespace stepscope
