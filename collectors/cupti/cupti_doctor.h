// The checks of `stepscope doctor` for CUPTI, with CUPTI and the driver as
// arguments.
#pragma once

#include <stepscope/doctor.h>

#include <string>
#include <vector>

#include "cupti_collector.h"

namespace stepscope {

std::vector<DoctorLine> CheckCupti(const CuptiSources& sources);

// Adds a line if the torch in this folder has a CUPTI monitor
// (torch.profiler._cupti), which excludes stepscope from CUPTI while it runs.
void AddTorchMonitor(const std::string& torch_folder,
                     std::vector<DoctorLine>* lines);

}  // namespace stepscope
