// The one symbol of a torch shim: the collectors that need LibTorch.
#include <stepscope/collectors.h>
#include <torch/version.h>

#include "shim.h"

namespace {

using stepscope::Collector;

// Read from the file before it is loaded (_shim.py).
__attribute__((used)) const char kMark[] =
    "STEPSCOPE-SHIM " STEPSCOPE_SHIM_ID " torch=" STEPSCOPE_SHIM_TORCH
    " cuda=" STEPSCOPE_SHIM_CUDA " ;";

// Nothing that C++ throws may cross into the core, which was built apart.
template <typename Make>
Collector* OrNull(Make make) noexcept {
  try {
    return make().release();
  } catch (...) {
    return nullptr;
  }
}

Collector* MakeSettings() { return OrNull(stepscope::MakeSettingsCollector); }

Collector* MakeAllocator() { return OrNull(stepscope::MakeAllocatorCollector); }

Collector* MakeTorch(const stepscope_torch_options* options) {
  return OrNull([&] {
    return stepscope::MakeTorchCollector(
        {.record_shapes = options->record_shapes,
         .record_memory = options->profile_memory,
         .with_stack = options->with_stack});
  });
}

constexpr stepscope_shim kShim = {.abi = STEPSCOPE_SHIM_ABI,
                                  .id = STEPSCOPE_SHIM_ID,
                                  .torch = STEPSCOPE_SHIM_TORCH,
                                  .make_settings = &MakeSettings,
                                  .make_allocator = &MakeAllocator,
                                  .make_torch = &MakeTorch};

}  // namespace

extern "C" const stepscope_shim* stepscope_torch_shim(void) { return &kShim; }
