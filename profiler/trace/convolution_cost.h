// What convolutions cost, forward and backward, for every backend's order of
// arguments.
#pragma once

#include <string_view>

#include "op_arguments.h"

namespace stepscope {

OpCost ConvolutionCost(std::string_view op, const Arguments& args);

}  // namespace stepscope
