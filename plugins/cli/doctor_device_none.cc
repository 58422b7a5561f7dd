#include "doctor.h"

namespace stepscope {

std::vector<DoctorLine> DeviceLines(const std::string&) {
  return {{.topic = "CUPTI",
           .found = "left out of this build, for want of its headers",
           .remedy = "to record GPUs, build where CUDA 13's CUPTI headers are: "
                     "beside the torch wheel or in a toolkit",
           .ok = false}};
}

}  // namespace stepscope
