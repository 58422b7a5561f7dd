// What a torch shim gives to the core: the collectors that need LibTorch. The
// shim is a separate library, one for each torch version, which links the core.
// Both must be built from the same sources, which is checked with `id`.
#pragma once

#include <stepscope/capture_scopes.h>
#include <stepscope/collector.h>
#include <stepscope/module_hook.h>

#include "stepscope_c.h"

// Increased when the fields of the two structs below change.
#define STEPSCOPE_SHIM_ABI 3

extern "C" {

struct stepscope_torch_options {
  bool record_shapes;
  bool profile_memory;
  bool with_stack;
  bool with_modules;
  stepscope::ModuleHook module_hook;
};

// Each Make function returns a new object, or null if there is no memory.
struct stepscope_shim {
  int abi;
  const char* id;     // stepscope_shim_id() of the sources it was built from
  const char* torch;  // "2.11.0+cu130"
  stepscope::Collector* (*make_settings)();
  stepscope::Collector* (*make_allocator)();
  stepscope::Collector* (*make_torch)(const stepscope_torch_options* options);
  stepscope::CaptureScopes* (*make_capture_scopes)(
      const stepscope_torch_options* options);
  // Calls `call` once, on the thread on which the next operator begins. Returns
  // false if that is impossible.
  bool (*on_first_operator)(void (*call)());
};

// The only symbol that is looked up in a shim.
STEPSCOPE_API const stepscope_shim* stepscope_torch_shim(void);

// Defined by the core, for preload.cc. Records this process according to the
// variables STEPSCOPE_* (plugins/inject), from its first operator on.
STEPSCOPE_API int stepscope_record_program(const stepscope_shim* shim);
}
