// How NVTX ranges of this process reach us, for whoever puts an injection
// together (plugins/inject); others need MakeNvtxCollector() alone.
//
// NVTX is header-only: every binary of a process has its own table of
// functions, which its first NVTX call fills, once and for ever, from the
// library that NVTX_INJECTION64_PATH names, else from an injection linked into
// the binary itself. So we must be there before that call.
#pragma once

#include <absl/status/status.h>

#include <string_view>

namespace stepscope {

// Makes the NVTX of all binaries that have not used it yet call us, by setting
// NVTX_INJECTION64_PATH to the binary that holds this code. Does so once; call
// it early, before other threads read the environment. Unavailable if the
// variable names another tool, which is then left in place.
absl::Status EnableNvtx();

// Told where steps begin and end, on the thread that runs them.
class NvtxStepListener {
 public:
  virtual ~NvtxStepListener() = default;
  virtual void OnStepBegin() noexcept = 0;
  virtual void OnStepEnd() noexcept = 0;
};

// From now on, each range called `range` is a step of the first thread that
// opens one, whether pushed or started; ranges of that name inside it, or on
// other threads, are not. A mark of that name ends a step and begins the next
// one. "name@domain" means that domain alone. REQUIRES: called once; the
// listener lives for ever. A forked child tells it nothing.
void ListenForNvtxSteps(std::string_view range, NvtxStepListener* listener);

// Fills the function table of one binary; 1 if it did. `get_export_table` is
// what NVTX hands to InitializeInjectionNvtx2.
int AttachNvtx(const void* (*get_export_table)(unsigned int)) noexcept;

}  // namespace stepscope
