// Tells which binaries of the process the injection reaches.
#pragma once

namespace stepscope {

// True if only the NVTX calls of the binary with this code arrive. This happens
// if the binary does not export InitializeInjectionNvtx2, because then other
// binaries do not find it. REQUIRES: EnableNvtx() was called.
bool NvtxReachesOneBinary();

}  // namespace stepscope
