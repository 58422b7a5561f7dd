// How the NVTX calls of this process reach stepscope. Used by plugins/inject;
// other programs need only MakeNvtxCollector().
//
// NVTX is header-only. Every binary of a process has its own table of
// functions, which its first NVTX call fills for good: from the library that
// NVTX_INJECTION64_PATH names, else from an injection in the binary itself.
// stepscope therefore has to be installed before that call.
#pragma once

#include <absl/status/status.h>

#include <string_view>

namespace stepscope {

// Directs NVTX calls to stepscope, by setting NVTX_INJECTION64_PATH to the
// binary that contains this code. It takes effect only in binaries that have
// made no NVTX call yet. Only the first call of this function does anything;
// make it before other threads read the environment. Unavailable if the
// variable names another tool, which is not replaced.
absl::Status EnableNvtx();

// Called when steps begin and end, on the thread that runs them.
class NvtxStepListener {
 public:
  virtual ~NvtxStepListener() = default;
  virtual void OnStepBegin() noexcept = 0;
  virtual void OnStepEnd() noexcept = 0;
};

// From now on, each pushed or started range named `range` is a step if it is on
// the first thread that opens one. Ranges of that name inside a step or on
// other threads are not steps. A mark of that name ends a step and begins the
// next. "name@domain" selects a domain. REQUIRES: called once; the listener is
// never destroyed. In a forked child the listener is not called.
void ListenForNvtxSteps(std::string_view range, NvtxStepListener* listener);

// Fills the function table of one binary. Returns 1 on success.
// `get_export_table` is the argument of InitializeInjectionNvtx2.
int AttachNvtx(const void* (*get_export_table)(unsigned int)) noexcept;

}  // namespace stepscope
