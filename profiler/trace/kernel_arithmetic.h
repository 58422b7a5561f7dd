// What a kernel's name says about its arithmetic. Names are in lower case.
#pragma once

#include <stepscope/kernel_class.h>

#include <string_view>

namespace stepscope {

// Of a kernel that multiplies matrices, convolves or attends.
TensorCores TensorCoresOf(std::string_view name);

Precision PrecisionOf(std::string_view name);

}  // namespace stepscope
