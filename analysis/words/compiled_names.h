// Names of compiled kernels and of the ops that launch them, with the operators
// that they were fused from.
#pragma once

#include <string>
#include <string_view>

namespace stepscope {

// "add + relu (compiled), triton_poi_fused_add_relu_0"; `name` itself if it is
// not that of a compiled kernel (compiled_kernel.h). Pure.
std::string WithFusedOps(std::string_view name);

}  // namespace stepscope
