#include "api_calls.h"

#include <algorithm>
#include <cctype>

namespace stepscope {
namespace {

// Prefixes of names. Creating and destroying events and streams is not
// recorded, because these calls are cheap and frequent. Neither is polling
// (cudaEventQuery, cudaStreamQuery), which watchdogs do thousands of times per
// second.
constexpr std::string_view kRuntime[] = {
    "__cudaLaunchKernel",
    "cudaLaunch",
    "cudaGraphLaunch",
    "cudaGraphInstantiate",
    "cudaGraphUpload",
    "cudaMemcpy",
    "cudaMemset",
    "cudaMemPrefetch",
    "cudaStreamSynchronize",
    "cudaStreamWaitEvent",
    "cudaStreamBeginCapture",
    "cudaStreamEndCapture",
    "cudaDeviceSynchronize",
    "cudaThreadSynchronize",
    "cudaEventRecord",
    "cudaEventSynchronize",
    "cudaMalloc",
    "cudaFree",
    "cudaHostAlloc",
    "cudaHostRegister",
    "cudaHostUnregister",
    "cudaMemPoolTrimTo",
    "cudaMemPoolCreate",
    "cudaMemPoolDestroy",
};
constexpr std::string_view kDriver[] = {
    "cuLaunch",
    "cuGraphLaunch",
    "cuGraphInstantiate",
    "cuGraphUpload",
    "cuMemcpy",
    "cuMemset",
    "cuMemPrefetch",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamWaitValue",
    "cuStreamBatchMemOp",
    "cuCtxSynchronize",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuModuleLoad",
    "cuLibraryLoad",
};
// Ids are dense: after this many unknown ids in a row there are no more calls.
constexpr uint32_t kGapThatEnds = 64;

bool AllDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

}  // namespace

// CUPTI's tables have one id for each version of a function and for each
// default-stream variant (_ptsz, _ptds).
std::string_view CallName(std::string_view name) {
  // One suffix at a time: cuMemcpyHtoDAsync_v2_ptsz has two.
  for (;;) {
    const size_t at = name.rfind('_');
    if (at == std::string_view::npos || at == 0) return name;
    const std::string_view tail = name.substr(at + 1);
    const bool version = tail.starts_with('v') && AllDigits(tail.substr(1));
    if (!version && tail != "ptsz" && tail != "ptds") return name;
    name = name.substr(0, at);
  }
}

bool IsWorthRecording(std::string_view name) {
  const auto begins = [&](std::string_view prefix) {
    return name.starts_with(prefix);
  };
  return std::any_of(std::begin(kRuntime), std::end(kRuntime), begins) ||
         std::any_of(std::begin(kDriver), std::end(kDriver), begins);
}

std::vector<uint32_t> CallsToLeaveOut(const CuptiApi& api,
                                      CUpti_CallbackDomain domain) {
  return CallsThat(api, domain, [](std::string_view name) {
    return !IsWorthRecording(name);
  });
}

// CUPTI has no list of its calls, so this tries one id after the other.
std::vector<uint32_t> CallsThat(const CuptiApi& api,
                                CUpti_CallbackDomain domain,
                                bool (*is_wanted)(std::string_view)) {
  std::vector<uint32_t> ids;
  uint32_t last_known = 0;
  for (uint32_t id = 1; id - last_known <= kGapThatEnds; ++id) {
    const char* name = nullptr;
    if (api.GetCallbackName(domain, id, &name) != CUPTI_SUCCESS ||
        name == nullptr) {
      continue;
    }
    last_known = id;
    if (is_wanted(CallName(name))) ids.push_back(id);
  }
  return ids;
}

}  // namespace stepscope
