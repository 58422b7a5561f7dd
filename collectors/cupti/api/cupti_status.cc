#include "cupti_status.h"

namespace stepscope {
namespace {

// The name under which torch's CUPTI monitor subscribes.
constexpr std::string_view kTorchMonitor = "torch-cupti-monitor";

// CUPTI's name for a subscriber that gave no name, such as torch.profiler (seen
// on an H200, CUDA 13.0).
constexpr std::string_view kNameless = "<not provided>";

// Returns an addition to the holder's name that tells users what the holder is.
std::string MeaningOf(std::string_view holder) {
  if (holder.find(kTorchMonitor) != std::string_view::npos) {
    return ", the monitor of torch.profiler._cupti";
  }
  if (holder.find(kNameless) != std::string_view::npos) {
    return ", probably torch.profiler, which keeps it after its first use "
           "unless TEARDOWN_CUPTI=1 is in the environment";
  }
  return "";
}

struct Advice {
  absl::StatusCode code;
  std::string text;
};

// What a user can do about each of CUPTI's codes. Unavailable means that
// nothing is wrong and only the CPU is recorded.
Advice AdviceFor(const CuptiApi& api, CUptiResult code,
                 std::string_view holder) {
  switch (code) {
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: {
      const std::string who =
          holder.empty()
              ? "another profiler holds CUPTI (torch.profiler keeps it after "
                "its first use; Nsight Systems, Nsight Compute and DCGM hold "
                "it "
                "from outside)"
              : "CUPTI is held by \"" + std::string(holder) + "\"" +
                    MeaningOf(holder);
      return {absl::StatusCode::kFailedPrecondition,
              who +
                  "; stop it, or record without the CUPTI collector. It is "
                  "tried again in the next cycle"};
    }
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return {absl::StatusCode::kPermissionDenied,
              "the driver lets only administrators profile (ERR_NVGPUCTRPERM): "
              "load it with NVreg_RestrictProfilingToAdminUsers=0 (a line in "
              "/etc/modprobe.d, then a restart), or run with CAP_SYS_ADMIN (in "
              "a container: --cap-add=SYS_ADMIN)"};
    // From CUDA 13.2 on there are two families of activity calls. A tool that
    // uses one family excludes the other from the process.
    case CUPTI_ERROR_NOT_COMPATIBLE:
    case CUPTI_ERROR_NOT_INITIALIZED: {
      std::string advice;
      if (code == CUPTI_ERROR_NOT_COMPATIBLE && api.version() >= 130200) {
        advice =
            "torch's CUPTI monitor (torch.profiler._cupti) or another tool "
            "uses CUPTI in this process: stop it. Otherwise ";
      }
      advice +=
          "the library does not fit the driver, or a second copy of it is on "
          "the path: this one is ";
      advice += api.library() + " (CUDA " + CudaVersionOf(api.version());
      advice +=
          "); use the one that came with torch, and a driver at least as new";
      return {absl::StatusCode::kFailedPrecondition, advice};
    }
    case CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED:
    case CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED:
      return {absl::StatusCode::kFailedPrecondition,
              "another profiling interface of the driver is in use; stop the "
              "tool that uses it"};
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
    case CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_NOT_SUPPORTED:
      return {absl::StatusCode::kUnavailable,
              "this device cannot be profiled the way it is set up; the GPU is "
              "left out of the recording"};
    case CUPTI_ERROR_OUT_OF_MEMORY:
    case CUPTI_ERROR_MAX_LIMIT_REACHED:
      return {absl::StatusCode::kResourceExhausted,
              "CUPTI found no memory; leave it some on the device, or lower "
              "the collector's max_buffer_bytes"};
    default:
      return {absl::StatusCode::kInternal,
              "the GPU is left out of this cycle and tried again in the next"};
  }
}

}  // namespace

absl::Status CuptiError(const CuptiApi& api, std::string_view attempt,
                        CUptiResult code, std::string_view holder) {
  const Advice advice = AdviceFor(api, code, holder);
  return absl::Status(advice.code, "CUPTI: cannot " + std::string(attempt) +
                                       ": " + api.NameOf(code) + " (code " +
                                       std::to_string(code) +
                                       "): " + advice.text);
}

}  // namespace stepscope
