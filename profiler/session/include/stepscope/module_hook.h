// ModuleHook: how an interpreter tells which modules (torch.nn.Module) are
// running. Only it can see the arguments of its frames. A plain struct of
// pointers, so that a C ABI can carry it.
#pragma once

#include <cstdint>

namespace stepscope {

// The functions are called only for the one step of a window that is looked at
// closely (Collector::OnSampleStep) and while a CUDA graph is captured, must
// not throw or call stepscope, and are there for the rest of the process: a
// thread may be inside one when the window closes. `user` is theirs, and
// another one for each recording.
struct ModuleHook {
  void* user = nullptr;

  // Fills `calls` with the calls of modules that are running on the calling
  // thread, outermost first, at most `capacity`, and returns their number; 0 if
  // there are none. A call is a number other than 0 that no other call has: the
  // same module called twice is two. Called before an operator that is inside
  // no other one, on its thread, which the interpreter knows and which may or
  // may not hold its lock.
  int32_t (*open_calls)(void* user, uint64_t* calls,
                        int32_t capacity) = nullptr;

  // Writes the path of the call's module and its class,
  // "layer1.0.conv1\nConv2d" in UTF-8, at most `capacity` bytes, and returns
  // their number; 0 if it does not know the call. Called on the thread that
  // trains, after that step; in a capture, at once.
  int32_t (*describe)(void* user, uint64_t call, char* text,
                      int32_t capacity) = nullptr;

  explicit operator bool() const {
    return open_calls != nullptr && describe != nullptr;
  }
};

}  // namespace stepscope
