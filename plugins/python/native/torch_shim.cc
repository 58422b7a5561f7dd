// The only symbol of a torch shim: the collectors that need LibTorch.
#include <ATen/record_function.h>
#include <stepscope/collectors.h>
#include <torch/version.h>

#include <atomic>
#include <memory>

#include "shim.h"

namespace {

using stepscope::CaptureScopes;
using stepscope::Collector;

// _shim.py reads this text from the file before it loads the library.
__attribute__((used)) const char kMark[] =
    "STEPSCOPE-SHIM " STEPSCOPE_SHIM_ID " torch=" STEPSCOPE_SHIM_TORCH
    " cuda=" STEPSCOPE_SHIM_CUDA " ;";

// No C++ exception may cross into the core, which was built separately.
template <typename Make>
auto OrNull(Make make) noexcept -> decltype(make().release()) {
  try {
    return make().release();
  } catch (...) {
    return nullptr;
  }
}

Collector* MakeSettings() { return OrNull(stepscope::MakeSettingsCollector); }

Collector* MakeAllocator() { return OrNull(stepscope::MakeAllocatorCollector); }

stepscope::TorchOptions OptionsOf(const stepscope_torch_options& options) {
  return {.record_shapes = options.record_shapes,
          .record_memory = options.profile_memory,
          .with_stack = options.with_stack,
          .with_modules = options.with_modules,
          .module_hook = options.module_hook};
}

Collector* MakeTorch(const stepscope_torch_options* options) {
  return OrNull(
      [&] { return stepscope::MakeTorchCollector(OptionsOf(*options)); });
}

CaptureScopes* MakeCaptureScopes(const stepscope_torch_options* options) {
  return OrNull(
      [&] { return stepscope::MakeTorchCaptureScopes(OptionsOf(*options)); });
}

constinit std::atomic<void (*)()> g_first_operator{nullptr};
constinit std::atomic<at::CallbackHandle> g_handle{0};

std::unique_ptr<at::ObserverContext> OnOperator(const at::RecordFunction&) {
  // Operators of several threads may begin at the same time. Only one of them
  // gets the function.
  if (const auto call = g_first_operator.exchange(nullptr)) {
    at::removeCallback(g_handle.load());
    call();
  }
  return nullptr;
}

bool OnFirstOperator(void (*call)()) {
  try {
    // Set the handle before the function: once the function is set, any thread
    // may take it and remove the callback through the handle.
    g_handle = at::addGlobalCallback(at::RecordFunctionCallback(&OnOperator)
                                         .scopes({at::RecordScope::FUNCTION}));
    g_first_operator = call;
    return true;
  } catch (...) {
    return false;
  }
}

constexpr stepscope_shim kShim = {.abi = STEPSCOPE_SHIM_ABI,
                                  .id = STEPSCOPE_SHIM_ID,
                                  .torch = STEPSCOPE_SHIM_TORCH,
                                  .make_settings = &MakeSettings,
                                  .make_allocator = &MakeAllocator,
                                  .make_torch = &MakeTorch,
                                  .make_capture_scopes = &MakeCaptureScopes,
                                  .on_first_operator = &OnFirstOperator};

}  // namespace

extern "C" const stepscope_shim* stepscope_torch_shim(void) { return &kShim; }
