#include "doctor/doctor_lines.h"

namespace stepscope {

std::vector<DoctorLine> DeviceLines(const std::string&) {
  return {{.topic = "CUPTI",
           .found = "this build has no CUPTI: its headers were not found",
           .remedy = "to record GPUs, build where CUDA 13's CUPTI headers are "
                     "installed, in the wheels of torch or in a CUDA toolkit",
           .ok = false,
           .no_gpu = true}};
}

}  // namespace stepscope
