// The checks of CheckCupti(), with CUPTI and the driver as arguments.
#pragma once

#include <stepscope/doctor.h>

#include <vector>

#include "cupti_collector.h"

namespace stepscope {

std::vector<DoctorLine> CheckCupti(const CuptiSources& sources);

}  // namespace stepscope
