// CuptiApi: the CUPTI calls that stepscope makes, behind an interface, so that
// tests can replay records and make any call fail. It uses only the older
// family of activity calls, because CUPTI's count of dropped records stays 0 if
// both families are used.
//
// Any thread may call it. In a forked child nothing may be called
// (cupti_fork.h).
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace stepscope {

// The supported versions: CUDA 12.0 up to the last 13.x. The record layouts up
// to kNewestKnownCupti were compared with NVIDIA's headers
// (tests/collectors/cupti/real_cupti_test.cc). Later versions are read, too,
// with a note, because new fields have always been added at the end of a
// record.
inline constexpr uint32_t kOldestCupti = 18;
inline constexpr uint32_t kNewestKnownCupti = 130599;
inline constexpr uint32_t kNewestCupti = 139999;
// From this version on (CUDA 12.9) a request for a buffer may be refused with
// null. Older CUPTI crashes then.
inline constexpr uint32_t kCuptiTakesNullBuffers = 27;
// From this version on (CUDA 12.6) cuptiFinalize() keeps existing CUDA graphs
// intact.
inline constexpr uint32_t kCuptiDetachesFromGraphs = 24;

// Returns "13.0 Update 1" for 130001, "12.4" for 22; "" for unknown numbers.
std::string CudaVersionOf(uint32_t cupti_version);

struct CounterFunctions;  // counter_functions.h

class CuptiApi {
 public:
  virtual ~CuptiApi() = default;

  // The library's number (cuptiGetVersion) and the file that it was loaded
  // from.
  virtual uint32_t version() const = 0;
  virtual std::string library() const = 0;

  // Calls cuptiSubscribe_v2 if the library has it (CUDA 13.0). `holder` is then
  // the name of the tool that has already subscribed, or "". CUDA 13.2 and
  // later can admit a second subscriber. This is not used, because the older
  // family of activity calls knows only one.
  virtual CUptiResult Subscribe(CUpti_SubscriberHandle* subscriber,
                                CUpti_CallbackFunc callback, void* user,
                                std::string* holder) = 0;
  virtual CUptiResult Unsubscribe(CUpti_SubscriberHandle subscriber) = 0;
  virtual CUptiResult EnableDomain(bool on, CUpti_SubscriberHandle subscriber,
                                   CUpti_CallbackDomain domain) = 0;
  virtual CUptiResult GetCallbackName(CUpti_CallbackDomain domain, uint32_t id,
                                      const char** name) const = 0;
  // Calls the subscriber on one kind of event of a domain.
  virtual CUptiResult EnableCallback(bool on, CUpti_SubscriberHandle subscriber,
                                     CUpti_CallbackDomain domain, uint32_t id) {
    (void)on, (void)subscriber, (void)domain, (void)id;
    return CUPTI_ERROR_API_NOT_IMPLEMENTED;
  }
  // The id of a node of a CUDA graph, as in the records of its work. May be
  // used in callbacks.
  virtual CUptiResult GetGraphNodeId(CUgraphNode node, uint64_t* id) const {
    (void)node, (void)id;
    return CUPTI_ERROR_API_NOT_IMPLEMENTED;
  }

  virtual CUptiResult SetThreadIdType(CUpti_ActivityThreadIdType type) = 0;
  virtual CUptiResult RegisterCallbacks(
      CUpti_BuffersCallbackRequestFunc request,
      CUpti_BuffersCallbackCompleteFunc complete) = 0;
  virtual CUptiResult Enable(CUpti_ActivityKind kind) = 0;
  // Like Enable(), but also delivers records of existing devices, contexts and
  // streams.
  virtual CUptiResult EnableAndDump(CUpti_ActivityKind kind) = 0;
  virtual CUptiResult Disable(CUpti_ActivityKind kind) = 0;
  // Selects one call of the runtime or driver API. Returns
  // CUPTI_ERROR_API_NOT_IMPLEMENTED if the library can only record all or none.
  virtual CUptiResult EnableCall(bool on, CUpti_CallbackDomain domain,
                                 uint32_t id) = 0;
  virtual CUptiResult EnableLatencyTimestamps(bool on) = 0;
  // Sets whether polling an event or a stream that is not done leaves a record.
  // Before CUDA 12.8 it always does, and this returns
  // CUPTI_ERROR_API_NOT_IMPLEMENTED.
  virtual CUptiResult EnableAllSyncRecords(bool on) {
    (void)on;
    return CUPTI_ERROR_API_NOT_IMPLEMENTED;
  }
  virtual CUptiResult FlushAll(uint32_t flag) = 0;
  virtual CUptiResult GetNumDroppedRecords(size_t* dropped) = 0;
  virtual CUptiResult GetTimestamp(uint64_t* timestamp_ns) const = 0;
  // Advances *record to the next record, or to the first one if it is null.
  virtual CUptiResult GetNextRecord(const uint8_t* buffer, size_t valid_bytes,
                                    CUpti_Activity** record) const = 0;
  virtual CUptiResult Finalize() = 0;

  // The functions for sampling hardware counters. Null if the library lacks any
  // of them (before CUDA 12.6); `missing` is then the name of the first.
  virtual const CounterFunctions* counters(std::string* missing) const {
    *missing = "cuptiPmSamplingEnable";
    return nullptr;
  }

  // CUPTI's name of a code, for example "CUPTI_ERROR_UNKNOWN".
  virtual std::string NameOf(CUptiResult code) const = 0;
};

// Where to find the library. If `path` is empty, these are tried in order: the
// library already in this process, $STEPSCOPE_CUPTI_LIBRARY, NVIDIA's wheel
// beside libtorch, the toolkit, the loader's search path.
struct CuptiLibrary {
  std::string path = {};
  // The folder of libtorch_cpu.so, for a process that has not loaded it.
  std::string torch_folder = {};
};

// Loads CUPTI, which stays loaded until the process ends. Unavailable if no
// library is found, FailedPrecondition if its version or its functions do not
// fit. The message names the file and says what to do.
absl::StatusOr<std::unique_ptr<CuptiApi>> LoadCupti(
    const CuptiLibrary& library = {});

}  // namespace stepscope
