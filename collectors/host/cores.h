// The number of cores that this process may use, and their model.
#pragma once

#include <cstdint>
#include <string>

namespace stepscope {

// Returns the number of cores that this process may use: the smaller of the
// affinity mask and the CPU quota of its control groups (version 1 or 2, every
// group up to the root). A fractional quota is rounded up. -1 if neither can be
// read. `root` precedes "/proc" and "/sys".
int32_t UsableCores(const std::string& root);

// Returns "Intel(R) Xeon(R) ..."; "" if unknown.
std::string CpuModel(const std::string& root);

}  // namespace stepscope
