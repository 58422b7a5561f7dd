#include "nvtx_streams.h"

#include <dlfcn.h>

#include <array>

namespace stepscope {
namespace {

// The few functions that are needed, as CUDA 12 and 13 declare them
// (cupti_activity.h, cuda.h). 0 means success in both.
using GetStreamId = int (*)(void* context, void* stream, uint8_t per_thread,
                            uint32_t* id);
using GetContextId = int (*)(void* context, uint32_t* id);
using GetContext = int (*)(void* stream, void** context);

template <typename Function>
Function Find(void* library, const char* name) {
  return library == nullptr ? nullptr
                            : reinterpret_cast<Function>(dlsym(library, name));
}

template <size_t n>
void* Loaded(const std::array<const char*, n>& names) {
  for (const char* name : names) {
    if (void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) return library;
  }
  return nullptr;
}

}  // namespace

// A Trace uses CUPTI's number of a stream, but NVTX passes its handle. Only
// CUPTI knows both.
bool FindStream(void* stream, uint32_t* context, uint32_t* id) noexcept {
  void* const cupti = Loaded(std::array{"libcupti.so.13", "libcupti.so.12"});
  void* const driver = Loaded(std::array{"libcuda.so.1"});
  const auto stream_id = Find<GetStreamId>(cupti, "cuptiGetStreamIdEx");
  const auto context_id = Find<GetContextId>(cupti, "cuptiGetContextId");
  const auto context_of = Find<GetContext>(driver, "cuStreamGetCtx");
  void* owner = nullptr;
  const bool found = stream_id != nullptr && context_id != nullptr &&
                     context_of != nullptr && context_of(stream, &owner) == 0 &&
                     context_id(owner, context) == 0 &&
                     stream_id(owner, stream, 0, id) == 0;
  // Undo the references that dlopen() added with RTLD_NOLOAD.
  if (cupti != nullptr) dlclose(cupti);
  if (driver != nullptr) dlclose(driver);
  return found;
}

}  // namespace stepscope
