// How resnet finds its only part that links LibTorch's CUDA half.
#pragma once

#include "captured_work.h"

namespace resnet {

inline constexpr char kCudaGraphLibrary[] = "libresnet_cuda_graph.so";
inline constexpr char kMakeCudaGraphName[] = "resnet_make_cuda_graph";

// Makes a CUDA graph that the caller owns.
using MakeCudaGraphFunction = CapturedWork*();

}  // namespace resnet
