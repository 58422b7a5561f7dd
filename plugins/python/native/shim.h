// What a torch shim gives to the core: the collectors that need LibTorch. The
// shim is a library of its own, one per torch version, which links the core;
// both are built from the same sources, which `id` proves.
#pragma once

#include <stepscope/collector.h>

#include "stepscope_c.h"

// Changes with the fields of the two structs below.
#define STEPSCOPE_SHIM_ABI 1

extern "C" {

struct stepscope_torch_options {
  bool record_shapes;
  bool profile_memory;
  bool with_stack;
  bool with_modules;
};

// Each Make function returns a new Collector, or null where there is no memory.
struct stepscope_shim {
  int abi;
  const char* id;     // stepscope_shim_id() of the sources it was built from
  const char* torch;  // "2.11.0+cu130"
  stepscope::Collector* (*make_settings)();
  stepscope::Collector* (*make_allocator)();
  stepscope::Collector* (*make_torch)(const stepscope_torch_options* options);
};

// The one symbol that is looked up in a shim.
STEPSCOPE_API const stepscope_shim* stepscope_torch_shim(void);
}
