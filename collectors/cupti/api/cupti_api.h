// CuptiApi: the CUPTI calls that stepscope makes, behind an interface, so that
// tests can replay records and make any call fail. It uses the older family of
// activity calls only: if the two are mixed, CUPTI's count of dropped records
// stays 0.
//
// Any thread may call it. In a forked child nothing of it may be called
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

// The versions whose records are understood: CUDA 12.0 up to the last 13.x. The
// layouts up to kNewestKnownCupti were compared with NVIDIA's headers
// (tests/collectors/cupti/real_cupti_test.cc). Later ones are read all the
// same, because records have only ever grown at their ends, with a note.
inline constexpr uint32_t kOldestCupti = 18;
inline constexpr uint32_t kNewestKnownCupti = 130599;
inline constexpr uint32_t kNewestCupti = 139999;
// From this version on a request for a buffer may be refused with null; before
// it, CUPTI crashes (CUDA 12.9).
inline constexpr uint32_t kCuptiTakesNullBuffers = 27;
// From this version on cuptiFinalize() keeps existing CUDA graphs intact (CUDA
// 12.6).
inline constexpr uint32_t kCuptiDetachesFromGraphs = 24;

// "13.0 Update 1" for 130001, "12.4" for 22; "" for unknown numbers.
std::string CudaVersionOf(uint32_t cupti_version);

struct CounterFunctions;  // counter_functions.h

class CuptiApi {
 public:
  virtual ~CuptiApi() = default;

  // The library's number (cuptiGetVersion), and the file it came from.
  virtual uint32_t version() const = 0;
  virtual std::string library() const = 0;

  // cuptiSubscribe_v2 if the library has it (CUDA 13.0), and then `holder` is
  // the name of the tool that has already subscribed, or "". No second
  // subscriber is admitted, which CUDA 13.2 and later could do: the older
  // family of activity calls knows one alone.
  virtual CUptiResult Subscribe(CUpti_SubscriberHandle* subscriber,
                                CUpti_CallbackFunc callback, void* user,
                                std::string* holder) = 0;
  virtual CUptiResult Unsubscribe(CUpti_SubscriberHandle subscriber) = 0;
  virtual CUptiResult EnableDomain(bool on, CUpti_SubscriberHandle subscriber,
                                   CUpti_CallbackDomain domain) = 0;
  virtual CUptiResult GetCallbackName(CUpti_CallbackDomain domain, uint32_t id,
                                      const char** name) const = 0;
  // Calls the subscriber at one kind of event of a domain.
  virtual CUptiResult EnableCallback(bool on, CUpti_SubscriberHandle subscriber,
                                     CUpti_CallbackDomain domain, uint32_t id) {
    (void)on, (void)subscriber, (void)domain, (void)id;
    return CUPTI_ERROR_API_NOT_IMPLEMENTED;
  }
  // The id of a node of a CUDA graph, as the records of its work have it. For
  // callbacks, too.
  virtual CUptiResult GetGraphNodeId(CUgraphNode node, uint64_t* id) const {
    (void)node, (void)id;
    return CUPTI_ERROR_API_NOT_IMPLEMENTED;
  }

  virtual CUptiResult SetThreadIdType(CUpti_ActivityThreadIdType type) = 0;
  virtual CUptiResult RegisterCallbacks(
      CUpti_BuffersCallbackRequestFunc request,
      CUpti_BuffersCallbackCompleteFunc complete) = 0;
  virtual CUptiResult Enable(CUpti_ActivityKind kind) = 0;
  // Also delivers records of existing devices, contexts and streams.
  virtual CUptiResult EnableAndDump(CUpti_ActivityKind kind) = 0;
  virtual CUptiResult Disable(CUpti_ActivityKind kind) = 0;
  // Selects one call of the runtime or driver API;
  // CUPTI_ERROR_API_NOT_IMPLEMENTED if the library can only record all or none.
  virtual CUptiResult EnableCall(bool on, CUpti_CallbackDomain domain,
                                 uint32_t id) = 0;
  virtual CUptiResult EnableLatencyTimestamps(bool on) = 0;
  // Whether polling an event or a stream that is not done leaves a record.
  // CUPTI_ERROR_API_NOT_IMPLEMENTED before CUDA 12.8, where it always does.
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

  // For sampling hardware counters; null if the library cannot (before CUDA
  // 12.6), and then `missing` is the function that it lacks.
  virtual const CounterFunctions* counters(std::string* missing) const {
    *missing = "cuptiPmSamplingEnable";
    return nullptr;
  }

  // CUPTI's name of a code: "CUPTI_ERROR_UNKNOWN".
  virtual std::string NameOf(CUptiResult code) const = 0;
};

// Where to find the library. With an empty `path`: the library already in this
// process, else $STEPSCOPE_CUPTI_LIBRARY, else NVIDIA's wheel beside libtorch,
// else the toolkit, else the loader's search path.
struct CuptiLibrary {
  std::string path = {};
  // The folder of libtorch_cpu.so, for a process that has not loaded it.
  std::string torch_folder = {};
};

// Loads CUPTI, which stays loaded until the process ends. Unavailable if none
// is found, FailedPrecondition if its version or its functions do not fit; the
// message names the file and says what to do.
absl::StatusOr<std::unique_ptr<CuptiApi>> LoadCupti(
    const CuptiLibrary& library = {});

}  // namespace stepscope
