// Names of compiled kernels, and of the ops that launch them, together with the
// operators that they were fused from.
#pragma once

#include <string>
#include <string_view>

namespace stepscope {

// Returns "add + relu (compiled), triton_poi_fused_add_relu_0"; returns `name`
// itself if it is not the name of a compiled kernel (compiled_kernel.h). Pure.
std::string WithFusedOps(std::string_view name);

}  // namespace stepscope
