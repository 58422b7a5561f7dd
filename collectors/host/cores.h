// How many cores this process may use, and what they are.
#pragma once

#include <cstdint>
#include <string>

namespace stepscope {

// The smaller of the affinity mask and the CPU quota of the control groups the
// process is in (version 1 or 2, each group up to the root); a fractional quota
// is rounded up. -1 if neither can be read. `root` comes before "/proc",
// "/sys".
int32_t UsableCores(const std::string& root);

// "Intel(R) Xeon(R) ..."; "" if unknown.
std::string CpuModel(const std::string& root);

}  // namespace stepscope
