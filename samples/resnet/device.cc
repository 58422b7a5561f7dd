#include "device.h"

#include <ATen/autocast_mode.h>
#include <dlfcn.h>

#include <string>

namespace resnet {
namespace {

// Asked for by name the loader finds the library beside libtorch_cpu.so, where
// this program's run path points.
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

Autocast::Autocast(torch::DeviceType device, bool on)
    : device_(device), on_(on) {
  if (!on_) return;
  at::autocast::set_autocast_dtype(device_, torch::kBFloat16);
  at::autocast::set_autocast_enabled(device_, true);
}

Autocast::~Autocast() {
  if (!on_) return;
  at::autocast::set_autocast_enabled(device_, false);
  at::autocast::clear_cache();
}

}  // namespace resnet
