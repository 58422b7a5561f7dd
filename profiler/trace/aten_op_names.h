// IsAtenOp(): whether PyTorch has an operator of that name.
#pragma once

#include <string_view>

namespace stepscope {

// `name` is without namespace and overload ("native_batch_norm"). True for the
// operators of ATen, prims and torch's collectives that compiled code may have
// been made from. Pure.
bool IsAtenOp(std::string_view name);

}  // namespace stepscope
