#include "cupti_switches.h"

#include <string>
#include <utility>

#include "api/api_calls.h"
#include "api/cupti_status.h"
#include "buffer_pool.h"

namespace stepscope {
namespace {

void CUPTIAPI RequestBuffer(uint8_t** buffer, size_t* bytes,
                            size_t* max_records) {
  *max_records = 0;  // as many as fit
  *buffer = ProcessPool().Request(bytes);
}

void CUPTIAPI CompleteBuffer(CUcontext, uint32_t, uint8_t* buffer, size_t,
                             size_t valid_bytes) {
  ProcessPool().Complete(buffer, valid_bytes);
}

// The kinds of records that a window needs from CUPTI. Kernels, copies and
// memsets are required, because they are the GPU's work. All others only
// explain it.
struct Wanted {
  CUpti_ActivityKind kind;
  const char* what;  // for messages
  bool needed;       // without it there is no recording
  bool dump;         // also request records of existing objects
  Kind watched;      // kCount: none
};

std::vector<Wanted> KindsFor(const CuptiOptions& options, bool has_clocks) {
  std::vector<Wanted> wanted = {
      {CUPTI_ACTIVITY_KIND_DEVICE, "devices", false, true, Kind::kCount},
      {CUPTI_ACTIVITY_KIND_CONTEXT, "contexts", false, true, Kind::kCount},
      {CUPTI_ACTIVITY_KIND_STREAM, "streams", false, true, Kind::kCount},
      {CUPTI_ACTIVITY_KIND_NAME, "names", false, false, Kind::kCount},
      // The concurrent kind, because the other kind of kernel record makes
      // CUPTI run kernels one at a time.
      {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, "kernels", true, false,
       Kind::kKernel},
      {CUPTI_ACTIVITY_KIND_MEMCPY, "copies", true, false, Kind::kCopy},
      {CUPTI_ACTIVITY_KIND_MEMCPY2, "peer copies", false, false, Kind::kCount},
      {CUPTI_ACTIVITY_KIND_MEMSET, "memsets", true, false, Kind::kMemset},
      {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, "synchronisation", false, false,
       Kind::kSync},
      {CUPTI_ACTIVITY_KIND_CUDA_EVENT, "CUDA events", false, false,
       Kind::kCount},
      {CUPTI_ACTIVITY_KIND_OVERHEAD, "overhead", false, false, Kind::kOverhead},
  };
  if (options.whole_graphs) {
    wanted.push_back({CUPTI_ACTIVITY_KIND_GRAPH_TRACE, "graph launches", false,
                      false, Kind::kCount});
  }
  if (options.record_memory) {
    wanted.push_back({CUPTI_ACTIVITY_KIND_MEMORY2, "device memory", false,
                      false, Kind::kDeviceMemory});
    wanted.push_back({CUPTI_ACTIVITY_KIND_MEMORY_POOL, "memory pools", false,
                      false, Kind::kCount});
  }
  if (options.record_environment && !has_clocks) {
    wanted.push_back({CUPTI_ACTIVITY_KIND_ENVIRONMENT, "clocks and power",
                      false, false, Kind::kDeviceSample});
  }
  return wanted;
}

Loss LeftOut(const CuptiApi& api, const std::string& what, CUptiResult code) {
  return {.name = "cupti-kind-unavailable",
          .detail = "CUPTI gives no records of " + what + " here: " +
                    api.NameOf(code) + " (code " + std::to_string(code) + ")",
          .count = -1,
          .severity = Severity::kNote};
}

}  // namespace

absl::Status CuptiSwitches::On(const CuptiOptions& options,
                               std::vector<Loss>* losses, bool has_clocks) {
  const auto fail = [&](const std::string& attempt, CUptiResult code) {
    Off(losses);
    return CuptiError(api_, attempt, code);
  };
  // Use the operating system's thread ids, because calls are matched to
  // operators by thread.
  if (const CUptiResult code =
          api_.SetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
      code != CUPTI_SUCCESS) {
    return fail("choose the kind of thread ids", code);
  }
  if (const CUptiResult code =
          api_.RegisterCallbacks(&RequestBuffer, &CompleteBuffer);
      code != CUPTI_SUCCESS) {
    return fail("register buffers", code);
  }
  if (options.queue_times) {
    if (const CUptiResult code = api_.EnableLatencyTimestamps(true);
        code != CUPTI_SUCCESS) {
      losses->push_back(LeftOut(api_, "queue times", code));
    }
  }
  // Before the kinds, because records of polls that find nothing done would
  // fill the buffers. If the library cannot leave them out, the decoder drops
  // them.
  if (!options.all_calls && api_.EnableAllSyncRecords(false) == CUPTI_SUCCESS) {
    on_.push_back({.is_polling = true});
  }
  for (const Wanted& wanted : KindsFor(options, has_clocks)) {
    const CUptiResult code = OnKind(wanted.kind, wanted.dump);
    if (code == CUPTI_SUCCESS) {
      if (wanted.watched != Kind::kCount) watched_.push_back(wanted.watched);
      continue;
    }
    if (wanted.needed) {
      return fail(std::string("record ") + wanted.what, code);
    }
    losses->push_back(LeftOut(api_, wanted.what, code));
  }
  if (const CUptiResult code =
          OnCalls(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_ACTIVITY_KIND_RUNTIME,
                  options.all_calls);
      code != CUPTI_SUCCESS) {
    return fail("record calls of the CUDA runtime", code);
  }
  watched_.push_back(Kind::kRuntimeCall);
  if (const CUptiResult code =
          OnCalls(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_ACTIVITY_KIND_DRIVER,
                  options.all_calls);
      code != CUPTI_SUCCESS) {
    return fail("record calls of the CUDA driver", code);
  }
  return absl::OkStatus();
}

// With `dump`, CUPTI also reports the contexts and streams that were created
// before the window, which would otherwise be unknown.
CUptiResult CuptiSwitches::OnKind(CUpti_ActivityKind kind, bool dump) {
  CUptiResult code = dump ? api_.EnableAndDump(kind) : api_.Enable(kind);
  // Some kinds cannot be dumped in every version.
  if (code != CUPTI_SUCCESS && dump) code = api_.Enable(kind);
  if (code == CUPTI_SUCCESS) on_.push_back({.kind = kind});
  return code;
}

// Records the calls of one domain without queries: the allocators of a program
// make them all the time, and recording one costs more than the query itself.
// The kind has to be switched on first. If calls are switched on one by one
// without it, they give no records once CUDA is in use, although CUPTI reports
// success (CUDA 13.0 on an H200). Nothing has to be undone, because CUPTI
// forgets which calls were left out as soon as any tool switches the kind on
// again.
CUptiResult CuptiSwitches::OnCalls(CUpti_CallbackDomain domain,
                                   CUpti_ActivityKind kind, bool all) {
  if (const CUptiResult code = OnKind(kind, false); code != CUPTI_SUCCESS) {
    return code;
  }
  if (all) return CUPTI_SUCCESS;
  for (const uint32_t id : CallsToLeaveOut(api_, domain)) {
    const CUptiResult code = api_.EnableCall(false, domain, id);
    // CUPTI refuses ids that name no call. A library that cannot leave out
    // calls refuses all ids, and the decoder then drops these calls.
    if (code != CUPTI_SUCCESS && code != CUPTI_ERROR_INVALID_PARAMETER) break;
  }
  return CUPTI_SUCCESS;
}

void CuptiSwitches::Off(std::vector<Loss>* losses) {
  watched_.clear();
  while (!on_.empty()) {
    const Switch last = on_.back();
    on_.pop_back();
    const CUptiResult code =
        last.is_polling ? api_.EnableAllSyncRecords(true)  // the default
                        : api_.Disable(last.kind);
    if (code == CUPTI_SUCCESS || losses == nullptr) continue;
    losses->push_back(
        {.name = "cupti-still-on",
         .detail = "CUPTI did not switch off one of its kinds of record: " +
                   api_.NameOf(code) + " (code " + std::to_string(code) +
                   "); CUDA calls may stay a little slower",
         .count = 1,
         .severity = Severity::kWarning});
  }
}

}  // namespace stepscope
