// What NVTX looks for in a library it is told to load, and by which we find out
// which library that must be.
#pragma once

extern "C" {

// Declared here so that whoever puts an injection together may define it
// (plugins/inject); nvtx_injection.cc does for all others. 1 if the binary that
// calls it is attached.
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    const void* (*get_export_table)(unsigned int));
}
