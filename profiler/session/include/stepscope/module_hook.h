// ModuleHook: tells which modules (torch.nn.Module) are running. An interpreter
// provides it, because only the interpreter sees the arguments of its frames.
// It is a plain struct of pointers, so that a C ABI can carry it.
#pragma once

#include <cstdint>

namespace stepscope {

// The functions are called only during a window's sample step
// (Collector::OnSampleStep) and while a CUDA graph is captured. They must not
// throw or call stepscope. They must stay valid for the rest of the process,
// because a thread may be inside one when the window closes. `user` is passed
// through unchanged; each recording has its own.
struct ModuleHook {
  void* user = nullptr;

  // Fills `calls` with the module calls that are running on the calling thread,
  // outermost first, at most `capacity`, and returns their number (0 if there
  // are none). Each call has a number other than 0 that no other call has, even
  // if the same module is called twice. Called before a top-level operator, on
  // the operator's thread, which the interpreter knows. The thread may or may
  // not hold the interpreter's lock.
  int32_t (*open_calls)(void* user, uint64_t* calls,
                        int32_t capacity) = nullptr;

  // Writes the module's path and class of a call, "layer1.0.conv1\nConv2d" in
  // UTF-8, at most `capacity` bytes. Returns their number, or 0 if the call is
  // not known. Called on the training thread, after the sample step; during a
  // capture, immediately.
  int32_t (*describe)(void* user, uint64_t call, char* text,
                      int32_t capacity) = nullptr;

  explicit operator bool() const {
    return open_calls != nullptr && describe != nullptr;
  }
};

}  // namespace stepscope
