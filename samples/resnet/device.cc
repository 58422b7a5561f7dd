#include "device.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <string>

namespace resnet {
namespace {

// Loaded by name, so that the loader finds the library beside libtorch_cpu.so,
// where this program's run path points.
absl::Status LoadCuda() {
  if (::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr) {
    return absl::OkStatus();
  }
  const char* why = ::dlerror();
  return absl::UnavailableError(
      std::string("cannot train on a GPU: libtorch_cuda.so does not load (") +
      (why == nullptr ? "no reason given" : why) +
      "); install a torch wheel with CUDA, or use --device cpu");
}

}  // namespace

absl::StatusOr<torch::Device> OpenDevice(DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return torch::Device(torch::kCPU);
  if (absl::Status s = LoadCuda(); !s.ok()) return s;
  try {
    if (torch::cuda::is_available()) return torch::Device(torch::kCUDA, 0);
  } catch (const c10::Error& error) {
    return absl::UnavailableError(std::string("cannot train on a GPU: ") +
                                  error.what_without_backtrace());
  }
  return absl::UnavailableError(
      "cannot train on a GPU: CUDA reports none; check that nvidia-smi lists "
      "one and that CUDA_VISIBLE_DEVICES does not hide it, or use --device "
      "cpu");
}

void Configure(const Options& options) {
  if (options.threads > 0) torch::set_num_threads(options.threads);
  torch::autograd::AnomalyMode::set_enabled(options.anomaly_mode);
  if (options.device == DeviceKind::kCpu) return;
  at::globalContext().setBenchmarkCuDNN(options.cudnn_benchmark);
  // LibTorch's default is TF32 for convolutions but not for products. Here
  // float32 means float32 unless the flag is given.
  at::globalContext().setAllowTF32CuDNN(options.tf32);
  at::globalContext().setAllowTF32CuBLAS(options.tf32);
}

}  // namespace resnet
