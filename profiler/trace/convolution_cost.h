// The cost of convolutions, forward and backward, for the argument orders of
// all backends.
#pragma once

#include <string_view>

#include "op_arguments.h"

namespace stepscope {

OpCost ConvolutionCost(std::string_view op, const Arguments& args);

}  // namespace stepscope
