// Reads the arithmetic of a kernel from its name, which is in lower case.
#pragma once

#include <stepscope/kernel_class.h>

#include <string_view>

namespace stepscope {

// For a kernel that multiplies matrices, convolves or computes attention.
TensorCores TensorCoresOf(std::string_view name);

Precision PrecisionOf(std::string_view name);

}  // namespace stepscope
