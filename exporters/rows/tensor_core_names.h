// Tells whether viewers recognise that a kernel uses Tensor Cores.
// kernel_class.h decides which kernels use them.
//
// XProf and the PyTorch plugin look for substrings from 2022, so they miss the
// kernels that cuBLAS, cuDNN and CUTLASS launch on Hopper. Exporters append
// kTensorCoreMark, which both recognise, to the name of such a kernel.
#pragma once

#include <string_view>

namespace stepscope {

inline constexpr std::string_view kTensorCoreMark = " [hmma]";

// True if the kernel uses Tensor Cores and neither viewer would recognise it.
bool NeedsTensorCoreMark(std::string_view kernel);

}  // namespace stepscope
