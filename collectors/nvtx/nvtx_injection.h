// The symbol that NVTX looks up in an injection library. Its address also tells
// which binary contains this code.
#pragma once

extern "C" {

// Defined by plugins/inject for its libraries, and by nvtx_injection.cc for all
// other programs. Returns 1 if the calling binary is attached.
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    const void* (*get_export_table)(unsigned int));
}
