// A few calls of the CUDA runtime for which LibTorch has no portable function:
// memory pools, managed and mapped memory, and a graph. They are found by name
// in LibTorch's libcudart, so nothing of CUDA is linked.
//
// Use it on one thread only. Each call throws std::runtime_error with the
// call's name if the runtime returns an error.
#pragma once

#include <cstddef>

namespace stepscope {

class CudaRuntime {
 public:
  CudaRuntime();
  ~CudaRuntime();
  CudaRuntime(const CudaRuntime&) = delete;
  CudaRuntime& operator=(const CudaRuntime&) = delete;

  // Calls cudaMallocAsync and cudaFreeAsync on a separate stream.
  void UsePools();
  // Launches a graph of a memset and a copy, which the constructor captured.
  void LaunchGraph();
  // Calls cudaMallocManaged and cudaHostAlloc, and a memset of each block.
  void UseManagedAndHostMemory();

 private:
  void CaptureGraph();

  void* stream_ = nullptr;
  void* graph_ = nullptr;
  void* launchable_ = nullptr;
  void* memory_ = nullptr;
  static constexpr size_t kBytes = size_t{1} << 20;
};

}  // namespace stepscope
