// The device part of `stepscope doctor`: one line for each requirement of GPU
// recording, with the remedy if it is not met.
#pragma once

#include <string>
#include <vector>

namespace stepscope {

struct DoctorLine {
  std::string topic;   // "driver", "CUPTI", "permissions", "subscription"
  std::string found;   // "CUDA 13.0, 1 device", or a path
  std::string remedy;  // what to do; empty if nothing
  bool ok = false;
  // `ok` is false because the machine has no GPU, which is a fault only if a
  // GPU is to be recorded.
  bool no_gpu = false;
};

// Checks the driver, CUPTI and its version, the permission to profile, and
// whether another tool holds CUPTI's subscription. Call it in a separate
// process, because it initialises CUDA and does what a recording does. Checks
// that depend on a failed one say that they were skipped. `torch_folder`: the
// folder of libtorch_cpu.so, beside which NVIDIA's wheels are installed; "" if
// unknown.
std::vector<DoctorLine> CheckCupti(const std::string& torch_folder = "");

}  // namespace stepscope
