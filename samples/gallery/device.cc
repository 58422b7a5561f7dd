#include "device.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <torch/cuda.h>

namespace gallery {

std::string OpenGpu() {
  if (::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* why = ::dlerror();
    return "libtorch_cuda.so does not load: " +
           std::string(why == nullptr ? "no reason given" : why);
  }
  try {
    if (torch::cuda::is_available()) return "";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "CUDA reports no GPU";
}

void WaitFor(c10::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

}  // namespace gallery
