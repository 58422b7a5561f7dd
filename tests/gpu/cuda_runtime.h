// The few calls of the CUDA runtime that LibTorch has no portable way to make:
// memory pools, managed and mapped memory, and a graph. Found by name in the
// libcudart that LibTorch brought, so that nothing of CUDA is linked.
//
// One thread uses it. Each call throws std::runtime_error with the call's name
// if the runtime refuses it.
#pragma once

#include <cstddef>

namespace stepscope {

class CudaRuntime {
 public:
  CudaRuntime();
  ~CudaRuntime();
  CudaRuntime(const CudaRuntime&) = delete;
  CudaRuntime& operator=(const CudaRuntime&) = delete;

  // cudaMallocAsync and cudaFreeAsync, on a stream of its own.
  void UsePools();
  // Launches a graph of a memset and a copy, captured when this was made.
  void LaunchGraph();
  // cudaMallocManaged, cudaHostAlloc, and a memset of each.
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
