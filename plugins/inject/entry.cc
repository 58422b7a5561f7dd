// The symbols that NVTX and the CUDA driver look up in an injection library.
#include <stepscope/nvtx.h>

#include "injected.h"

extern "C" {

// For NVTX_INJECTION64_PATH: called once for every binary of the process that
// uses NVTX, at its first NVTX call. Returns 1 if attached.
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    const void* (*get_export_table)(unsigned int)) {
  const int attached = stepscope::AttachNvtx(get_export_table);
  stepscope::StartInjected();
  return attached;
}

// For CUDA_INJECTION64_PATH: called once, while the driver initialises. It must
// not call CUDA, so the window begins later, on another thread.
__attribute__((visibility("default"))) int InitializeInjection() {
  stepscope::StartInjected();
  return 1;
}
}
