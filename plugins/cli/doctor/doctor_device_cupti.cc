#include "doctor/doctor_lines.h"

namespace stepscope {

std::vector<DoctorLine> DeviceLines(const std::string& torch_folder) {
  return CheckCupti(torch_folder);
}

}  // namespace stepscope
