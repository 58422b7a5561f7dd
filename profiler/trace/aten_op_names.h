// IsAtenOp(): True if PyTorch has an operator of that name.
#pragma once

#include <string_view>

namespace stepscope {

// True if `name`, given without namespace and overload ("native_batch_norm"),
// is an operator of ATen, prims or torch's collectives: an operator that
// compiled code may have been generated from. Pure.
bool IsAtenOp(std::string_view name);

}  // namespace stepscope
