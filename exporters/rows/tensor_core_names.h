// Whether the viewers of today can tell that a kernel runs on Tensor Cores.
// Which kernels do is kernel_class.h's to say.
//
// Both XProf and the PyTorch plugin look for substrings that date from 2022 and
// so miss what cuBLAS, cuDNN and CUTLASS launch on Hopper. Exporters append
// kTensorCoreMark to the name of such a kernel, which both understand.
#pragma once

#include <string_view>

namespace stepscope {

inline constexpr std::string_view kTensorCoreMark = " [hmma]";

// True if the kernel uses Tensor Cores and neither viewer would see it.
bool NeedsTensorCoreMark(std::string_view kernel);

}  // namespace stepscope
