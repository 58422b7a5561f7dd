// What NVTX and the CUDA driver look for in the library they are told to load.
#include <stepscope/nvtx.h>

#include "injected.h"

extern "C" {

// NVTX_INJECTION64_PATH: once for every binary of the process that uses NVTX,
// at its first call. 1: attached.
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    const void* (*get_export_table)(unsigned int)) {
  const int attached = stepscope::AttachNvtx(get_export_table);
  stepscope::StartInjected();
  return attached;
}

// CUDA_INJECTION64_PATH: once, as the driver is initialised. It must make no
// CUDA call, and makes none: the window begins on another thread, later.
__attribute__((visibility("default"))) int InitializeInjection() {
  stepscope::StartInjected();
  return 1;
}
}
