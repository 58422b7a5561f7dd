// The injection as it lies in a program that links stepscope.
#include "nvtx_injection.h"

#include <stepscope/nvtx.h>

extern "C" {

int InitializeInjectionNvtx2(const void* (*get_export_table)(unsigned int)) {
  return stepscope::AttachNvtx(get_export_table);
}

// Where NVTX finds us in the binary we are linked into, with no variable set.
// NVTX declares it weak, hidden, and null.
__attribute__((visibility("hidden"))) int (*InitializeInjectionNvtx2_fnptr)(
    const void* (*)(unsigned int)) = &InitializeInjectionNvtx2;
}
