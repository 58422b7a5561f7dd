#include <dlfcn.h>

#include <type_traits>
#include <utility>

#include "counter_functions.h"
#include "cupti_api.h"
#include "cupti_find.h"

namespace stepscope {
namespace {

// The functions that stepscope uses. The oldest supported library lacks the
// optional ones.
struct Functions {
  decltype(&cuptiGetVersion) get_version = nullptr;
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiSubscribe_v2) subscribe_v2 = nullptr;  // optional: 13.0
  decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
  decltype(&cuptiEnableDomain) enable_domain = nullptr;
  decltype(&cuptiGetCallbackName) get_callback_name = nullptr;
  decltype(&cuptiEnableCallback) enable_callback = nullptr;    // optional
  decltype(&cuptiGetGraphNodeId) get_graph_node_id = nullptr;  // optional
  decltype(&cuptiSetThreadIdType) set_thread_id_type = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityEnableAndDump) enable_and_dump = nullptr;  // optional
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityEnableRuntimeApi) enable_runtime =
      nullptr;                                                      // optional
  decltype(&cuptiActivityEnableDriverApi) enable_driver = nullptr;  // optional
  decltype(&cuptiActivityEnableLatencyTimestamps) enable_latency = nullptr;
  decltype(&cuptiActivityEnableAllSyncRecords) enable_all_sync =
      nullptr;  // optional: 12.8
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) get_dropped = nullptr;
  decltype(&cuptiGetTimestamp) get_timestamp = nullptr;
  decltype(&cuptiActivityGetNextRecord) get_next_record = nullptr;
  decltype(&cuptiFinalize) finalize = nullptr;
  decltype(&cuptiGetResultString) get_result_string = nullptr;

  // Returns the name of a missing required function; "" if none is missing.
  // Required functions have existed since CUDA 12.0. For each optional function
  // there is a replacement below.
  std::string Resolve(void* library) {
    std::string missing;
    const auto get = [&](auto& function, const char* name, bool required) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(
          dlsym(library, name));
      if (function == nullptr && required && missing.empty()) missing = name;
    };
    get(get_version, "cuptiGetVersion", true);
    get(subscribe, "cuptiSubscribe", true);
    get(subscribe_v2, "cuptiSubscribe_v2", false);
    get(unsubscribe, "cuptiUnsubscribe", true);
    get(enable_domain, "cuptiEnableDomain", true);
    get(get_callback_name, "cuptiGetCallbackName", true);
    get(enable_callback, "cuptiEnableCallback", false);
    get(get_graph_node_id, "cuptiGetGraphNodeId", false);
    get(set_thread_id_type, "cuptiSetThreadIdType", true);
    get(register_callbacks, "cuptiActivityRegisterCallbacks", true);
    get(enable, "cuptiActivityEnable", true);
    get(enable_and_dump, "cuptiActivityEnableAndDump", false);
    get(disable, "cuptiActivityDisable", true);
    get(enable_runtime, "cuptiActivityEnableRuntimeApi", false);
    get(enable_driver, "cuptiActivityEnableDriverApi", false);
    get(enable_latency, "cuptiActivityEnableLatencyTimestamps", true);
    get(enable_all_sync, "cuptiActivityEnableAllSyncRecords", false);
    get(flush_all, "cuptiActivityFlushAll", true);
    get(get_dropped, "cuptiActivityGetNumDroppedRecords", true);
    get(get_timestamp, "cuptiGetTimestamp", true);
    get(get_next_record, "cuptiActivityGetNextRecord", true);
    get(finalize, "cuptiFinalize", true);
    get(get_result_string, "cuptiGetResultString", true);
    return missing;
  }
};

class LoadedCupti : public CuptiApi {
 public:
  LoadedCupti(const Functions& f, void* handle, uint32_t version,
              std::string library)
      : f_(f),
        missing_counters_(counters_.Resolve(handle)),
        version_(version),
        library_(std::move(library)) {}

  uint32_t version() const override { return version_; }
  std::string library() const override { return library_; }

  // Version 2 also names the tool that holds CUPTI, for the error message.
  CUptiResult Subscribe(CUpti_SubscriberHandle* subscriber,
                        CUpti_CallbackFunc callback, void* user,
                        std::string* holder) override {
    holder->clear();
    if (f_.subscribe_v2 == nullptr) {
      return f_.subscribe(subscriber, callback, user);
    }
    char old_name[2 * CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = "";
    CUpti_SubscriberParams params = {};
    params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    params.subscriberName = "stepscope";
    params.oldSubscriberName = old_name;
    params.oldSubscriberSize = sizeof(old_name);
    const CUptiResult result =
        f_.subscribe_v2(subscriber, callback, user, &params);
    // Make sure that the text ends, whatever the library has written.
    old_name[sizeof(old_name) - 1] = '\0';
    if (result != CUPTI_SUCCESS) *holder = old_name;
    return result;
  }
  CUptiResult Unsubscribe(CUpti_SubscriberHandle subscriber) override {
    return f_.unsubscribe(subscriber);
  }
  CUptiResult EnableDomain(bool on, CUpti_SubscriberHandle subscriber,
                           CUpti_CallbackDomain domain) override {
    return f_.enable_domain(on, subscriber, domain);
  }
  CUptiResult GetCallbackName(CUpti_CallbackDomain domain, uint32_t id,
                              const char** name) const override {
    return f_.get_callback_name(domain, id, name);
  }
  CUptiResult EnableCallback(bool on, CUpti_SubscriberHandle subscriber,
                             CUpti_CallbackDomain domain,
                             uint32_t id) override {
    return f_.enable_callback == nullptr
               ? CUPTI_ERROR_API_NOT_IMPLEMENTED
               : f_.enable_callback(on, subscriber, domain, id);
  }
  CUptiResult GetGraphNodeId(CUgraphNode node, uint64_t* id) const override {
    return f_.get_graph_node_id == nullptr ? CUPTI_ERROR_API_NOT_IMPLEMENTED
                                           : f_.get_graph_node_id(node, id);
  }
  CUptiResult SetThreadIdType(CUpti_ActivityThreadIdType type) override {
    return f_.set_thread_id_type(type);
  }
  CUptiResult RegisterCallbacks(
      CUpti_BuffersCallbackRequestFunc request,
      CUpti_BuffersCallbackCompleteFunc complete) override {
    return f_.register_callbacks(request, complete);
  }
  CUptiResult Enable(CUpti_ActivityKind kind) override {
    return f_.enable(kind);
  }
  // Without this function, objects that were created before the window stay
  // unknown.
  CUptiResult EnableAndDump(CUpti_ActivityKind kind) override {
    return f_.enable_and_dump == nullptr ? f_.enable(kind)
                                         : f_.enable_and_dump(kind);
  }
  CUptiResult Disable(CUpti_ActivityKind kind) override {
    return f_.disable(kind);
  }
  CUptiResult EnableCall(bool on, CUpti_CallbackDomain domain,
                         uint32_t id) override {
    const bool runtime = domain == CUPTI_CB_DOMAIN_RUNTIME_API;
    const auto call = runtime ? f_.enable_runtime : f_.enable_driver;
    return call == nullptr ? CUPTI_ERROR_API_NOT_IMPLEMENTED : call(id, on);
  }
  CUptiResult EnableLatencyTimestamps(bool on) override {
    return f_.enable_latency(on);
  }
  CUptiResult EnableAllSyncRecords(bool on) override {
    return f_.enable_all_sync == nullptr ? CUPTI_ERROR_API_NOT_IMPLEMENTED
                                         : f_.enable_all_sync(on);
  }
  CUptiResult FlushAll(uint32_t flag) override { return f_.flush_all(flag); }
  CUptiResult GetNumDroppedRecords(size_t* dropped) override {
    // The null context stands for the global buffers, the only ones that are
    // used.
    return f_.get_dropped(nullptr, 0, dropped);
  }
  CUptiResult GetTimestamp(uint64_t* timestamp_ns) const override {
    return f_.get_timestamp(timestamp_ns);
  }
  CUptiResult GetNextRecord(const uint8_t* buffer, size_t valid_bytes,
                            CUpti_Activity** record) const override {
    return f_.get_next_record(const_cast<uint8_t*>(buffer), valid_bytes,
                              record);
  }
  CUptiResult Finalize() override { return f_.finalize(); }
  const CounterFunctions* counters(std::string* missing) const override {
    *missing = missing_counters_;
    return missing_counters_.empty() ? &counters_ : nullptr;
  }

  std::string NameOf(CUptiResult code) const override {
    const char* text = nullptr;
    if (f_.get_result_string(code, &text) != CUPTI_SUCCESS || text == nullptr) {
      return "an unknown CUPTI error";
    }
    return text;
  }

 private:
  Functions f_;
  CounterFunctions counters_;
  std::string missing_counters_;  // the first missing one; "" if all are there
  uint32_t version_;
  std::string library_;
};

std::string FileOf(void* address) {
  Dl_info object = {};
  if (dladdr(address, &object) == 0 || object.dli_fname == nullptr) return "";
  return object.dli_fname;
}

}  // namespace

// Before CUDA 13.0 CUPTI counted its API versions (cupti_version.h). Since 13.0
// the number is 10000 * major + 100 * minor + update.
std::string CudaVersionOf(uint32_t version) {
  if (version >= 130000) {
    const uint32_t update = version % 100;
    return std::to_string(version / 10000) + "." +
           std::to_string(version / 100 % 100) +
           (update == 0 ? "" : " Update " + std::to_string(update));
  }
  switch (version) {
    case 18:
    case 19:
      return "12.0";
    case 20:
      return "12.2";
    case 21:
      return "12.3";
    case 22:
      return "12.4";
    case 23:
      return "12.5";
    case 24:
    case 25:
      return "12.6";
    case 26:
      return "12.8";
    case 27:
    case 28:
      return "12.9";
    default:
      return "";
  }
}

absl::StatusOr<std::unique_ptr<CuptiApi>> LoadCupti(
    const CuptiLibrary& library) {
  std::string failure;
  void* handle = OpenCupti(library, &failure);
  if (handle == nullptr) {
    return absl::UnavailableError(
        "CUPTI: no libcupti.so was found (" + failure +
        "); install it (pip install nvidia-cuda-cupti, or the toolkit's "
        "cuda-cupti package) or name it in STEPSCOPE_CUPTI_LIBRARY; recording "
        "without the GPU");
  }
  Functions functions;
  const std::string missing = functions.Resolve(handle);
  // The file that was loaded. A name without a folder does not tell which.
  const std::string file =
      functions.get_version == nullptr
          ? library.path
          : FileOf(reinterpret_cast<void*>(functions.get_version));
  if (!missing.empty()) {
    return absl::FailedPreconditionError(
        "CUPTI: " + file + " has no function " + missing +
        "; it is not CUPTI 12 or 13: take the one that came with torch");
  }
  uint32_t version = 0;
  if (const CUptiResult result = functions.get_version(&version);
      result != CUPTI_SUCCESS) {
    return absl::UnavailableError(
        "CUPTI: " + file + " returns no version (code " +
        std::to_string(result) + "); recording without the GPU");
  }
  if (version < kOldestCupti || version > kNewestCupti) {
    return absl::FailedPreconditionError(
        "CUPTI: " + file + " is version " + std::to_string(version) +
        ", whose records stepscope does not know; use CUDA 12.0 to 13.x (CUPTI "
        "18 to 139999), or a newer stepscope");
  }
  return std::unique_ptr<CuptiApi>(
      std::make_unique<LoadedCupti>(functions, handle, version, file));
}

}  // namespace stepscope
