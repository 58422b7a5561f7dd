#include "gpu/cuda_runtime.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace stepscope {
namespace {

constexpr int kDeviceToDevice = 3;      // cudaMemcpyDeviceToDevice
constexpr int kCaptureThreadLocal = 1;  // cudaStreamCaptureModeThreadLocal
constexpr unsigned kAttachGlobal = 1;   // cudaMemAttachGlobal
constexpr unsigned kHostMapped = 2;     // cudaHostAllocMapped

// Calls a function of the CUDA runtime by its name.
template <typename... Arguments>
void Call(const char* name, Arguments... arguments) {
  using Function = int (*)(Arguments...);
  const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  if (function == nullptr)
    throw std::runtime_error(std::string("libcudart has no ") + name);
  const int result = function(arguments...);
  if (result != 0) {
    throw std::runtime_error(std::string(name) + " gave " +
                             std::to_string(result));
  }
}

}  // namespace

CudaRuntime::CudaRuntime() {
  Call("cudaStreamCreate", &stream_);
  Call("cudaMalloc", &memory_, 2 * kBytes);
  CaptureGraph();
}

CudaRuntime::~CudaRuntime() {
  try {
    Call("cudaGraphExecDestroy", launchable_);
    Call("cudaGraphDestroy", graph_);
    Call("cudaFree", memory_);
    Call("cudaStreamDestroy", stream_);
  } catch (const std::exception&) {
  }
}

void CudaRuntime::CaptureGraph() {
  Call("cudaStreamBeginCapture", stream_, kCaptureThreadLocal);
  Call("cudaMemsetAsync", memory_, 1, kBytes, stream_);
  Call("cudaMemcpyAsync",
       static_cast<void*>(static_cast<char*>(memory_) + kBytes),
       static_cast<const void*>(memory_), kBytes, kDeviceToDevice, stream_);
  Call("cudaStreamEndCapture", stream_, &graph_);
  Call("cudaGraphInstantiate", &launchable_, graph_, 0ull);
}

void CudaRuntime::LaunchGraph() {
  Call("cudaGraphLaunch", launchable_, stream_);
  Call("cudaStreamSynchronize", stream_);
}

void CudaRuntime::UsePools() {
  void* block = nullptr;
  Call("cudaMallocAsync", &block, kBytes, stream_);
  Call("cudaMemsetAsync", block, 0, kBytes, stream_);
  Call("cudaFreeAsync", block, stream_);
}

void CudaRuntime::UseManagedAndHostMemory() {
  void* managed = nullptr;
  Call("cudaMallocManaged", &managed, kBytes, kAttachGlobal);
  Call("cudaMemset", managed, 0, kBytes);
  Call("cudaFree", managed);
  void* host = nullptr;
  Call("cudaHostAlloc", &host, kBytes, kHostMapped);
  Call("cudaFreeHost", host);
}

}  // namespace stepscope
