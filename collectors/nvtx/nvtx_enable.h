// How far our injection reaches.
#pragma once

namespace stepscope {

// True if only the binary that holds this code calls us: it does not export
// InitializeInjectionNvtx2, so that the process's other binaries cannot find
// it. REQUIRES: EnableNvtx() was called.
bool NvtxReachesOneBinary();

}  // namespace stepscope
