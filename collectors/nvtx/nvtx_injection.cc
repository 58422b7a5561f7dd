// Defines the injection for a program that links stepscope.
#include "nvtx_injection.h"

#include <stepscope/nvtx.h>

extern "C" {

int InitializeInjectionNvtx2(const void* (*get_export_table)(unsigned int)) {
  return stepscope::AttachNvtx(get_export_table);
}

// NVTX reads this pointer in its own binary if the variable is not set. NVTX
// declares it as weak, hidden, and null.
__attribute__((visibility("hidden"))) int (*InitializeInjectionNvtx2_fnptr)(
    const void* (*)(unsigned int)) = &InitializeInjectionNvtx2;
}
