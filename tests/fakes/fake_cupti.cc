#include "fakes/fake_cupti.h"

#include <stepscope/clock.h>

#include <algorithm>
#include <memory>

namespace stepscope {
namespace {

struct NamedCall {
  uint32_t id;
  const char* name;
};
// A few of CUPTI's own names and numbers.
constexpr NamedCall kRuntimeCalls[] = {
    {1, "cudaDriverGetVersion_v3020"},
    {20, "cudaMalloc_v3020"},
    {22, "cudaFree_v3020"},
    {41, "cudaMemcpyAsync_v3020"},
    {51, "cudaMemsetAsync_v3020"},
    {90, "cudaGetDevice_v3020"},
    {131, "cudaStreamSynchronize_v3020"},
    {135, "cudaEventRecord_v3020"},
    {147, "cudaStreamWaitEvent_v3020"},
    {165, "cudaDeviceSynchronize_v3020"},
    {211, "cudaLaunchKernel_v7000"},
    {214, "cudaLaunchKernel_ptsz_v7000"},
    {271, "cudaFuncSetAttribute_v9000"},
    {311, "cudaGraphLaunch_v10000"},
};
constexpr NamedCall kDriverCalls[] = {
    {18, "cuCtxGetDevice"},        {19, "cuCtxSynchronize"},
    {79, "cuMemsetD2D16"},         {126, "cuStreamSynchronize"},
    {190, "cuCtxGetCurrent"},      {243, "cuMemAlloc_v2"},
    {277, "cuMemcpyHtoDAsync_v2"}, {307, "cuLaunchKernel"},
};

}  // namespace

CUptiResult FakeCupti::Enter(const char* name) {
  ++call_count_;
  calls_.emplace_back(name);
  if (fail_at_ > 0 && --fail_at_ == 0) return fail_code_;
  const auto found = fail_names_.find(name);
  return found == fail_names_.end() ? CUPTI_SUCCESS : found->second;
}

void FakeCupti::FailCall(int n, CUptiResult code) {
  const Lock lock(mutex_);
  fail_at_ = n;
  fail_code_ = code;
}
void FakeCupti::FailAll(const std::string& name, CUptiResult code) {
  const Lock lock(mutex_);
  fail_names_[name] = code;
}
void FakeCupti::FailKind(CUpti_ActivityKind kind, CUptiResult code) {
  const Lock lock(mutex_);
  fail_kinds_[kind] = code;
}
void FakeCupti::FailNothing() {
  const Lock lock(mutex_);
  fail_at_ = 0;
  fail_names_.clear();
  fail_kinds_.clear();
}
void FakeCupti::HoldBy(const std::string& tool) {
  const Lock lock(mutex_);
  holder_ = tool;
}

CUptiResult FakeCupti::Subscribe(CUpti_SubscriberHandle* subscriber,
                                 CUpti_CallbackFunc callback, void* user,
                                 std::string* holder) {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter("Subscribe"); r != CUPTI_SUCCESS) return r;
  if (!holder_.empty() || subscribed_) {
    *holder = subscribed_ ? "CUPTI for stepscope" : holder_;
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  subscribed_ = true;
  callback_ = callback;
  user_ = user;
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(this);
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::Unsubscribe(CUpti_SubscriberHandle subscriber) {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter("Unsubscribe"); r != CUPTI_SUCCESS) return r;
  if (!subscribed_ ||
      subscriber != reinterpret_cast<CUpti_SubscriberHandle>(this)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  subscribed_ = false;
  callback_ = nullptr;
  domains_.clear();
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::EnableDomain(bool on, CUpti_SubscriberHandle subscriber,
                                    CUpti_CallbackDomain domain) {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter("EnableDomain"); r != CUPTI_SUCCESS) return r;
  if (!subscribed_ || subscriber == nullptr) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (on) {
    domains_.insert(domain);
  } else {
    domains_.erase(domain);
  }
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::GetCallbackName(CUpti_CallbackDomain domain, uint32_t id,
                                       const char** name) {
  const auto find = [&](const auto& calls) {
    for (const NamedCall& call : calls) {
      if (call.id != id) continue;
      *name = call.name;
      return CUPTI_SUCCESS;
    }
    return CUPTI_ERROR_INVALID_PARAMETER;
  };
  return domain == CUPTI_CB_DOMAIN_RUNTIME_API ? find(kRuntimeCalls)
                                               : find(kDriverCalls);
}

CUptiResult FakeCupti::SetThreadIdType(CUpti_ActivityThreadIdType) {
  const Lock lock(mutex_);
  return Enter("SetThreadIdType");
}

CUptiResult FakeCupti::RegisterCallbacks(
    CUpti_BuffersCallbackRequestFunc request,
    CUpti_BuffersCallbackCompleteFunc complete) {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter("RegisterCallbacks"); r != CUPTI_SUCCESS) return r;
  request_ = request;
  complete_ = complete;
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::Enable(CUpti_ActivityKind kind, const char* name) {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter(name); r != CUPTI_SUCCESS) return r;
  if (const auto found = fail_kinds_.find(kind); found != fail_kinds_.end()) {
    return found->second;
  }
  enabled_.insert(kind);
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::Disable(CUpti_ActivityKind kind) {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter("Disable"); r != CUPTI_SUCCESS) return r;
  Deliver();  // what ran while the kind was on is not lost
  enabled_.erase(kind);
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::EnableCall(bool on, CUpti_CallbackDomain domain,
                                  uint32_t id) {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter("EnableCall"); r != CUPTI_SUCCESS) return r;
  if (!on) Deliver();
  const char* name = nullptr;
  if (GetCallbackName(domain, id, &name) != CUPTI_SUCCESS) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (on) {
    enabled_calls_.emplace(domain, id);
  } else {
    enabled_calls_.erase({domain, id});
  }
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::EnableLatencyTimestamps(bool) {
  const Lock lock(mutex_);
  return Enter("EnableLatencyTimestamps");
}

void FakeCupti::QueueBytes(uint32_t kind, std::vector<uint8_t> record) {
  const Lock lock(mutex_);
  // As long as this version makes it.
  const size_t bytes = RecordBytesOf(kind, version_);
  if (bytes > 0 && bytes < record.size()) record.resize(bytes);
  queue_.emplace_back(kind, std::move(record));
}

void FakeCupti::Complete() {
  if (open_.data == nullptr) return;
  const Open full = std::exchange(open_, Open{});
  complete_(nullptr, 0, full.data, full.bytes, full.used);
}

void FakeCupti::Deliver(bool keep_last) {
  const Lock lock(mutex_);
  for (const auto& [kind, record] : std::exchange(queue_, {})) {
    bool on = enabled_.contains(kind);
    if (kind == CUPTI_ACTIVITY_KIND_RUNTIME ||
        kind == CUPTI_ACTIVITY_KIND_DRIVER) {
      CUpti_ActivityAPI call;
      std::memcpy(static_cast<void*>(&call), record.data(),
                  std::min(record.size(), sizeof(call)));
      const uint32_t domain = kind == CUPTI_ACTIVITY_KIND_RUNTIME
                                  ? CUPTI_CB_DOMAIN_RUNTIME_API
                                  : CUPTI_CB_DOMAIN_DRIVER_API;
      on = on || enabled_calls_.contains({domain, uint32_t{call.cbid}});
    }
    if (!on || request_ == nullptr) continue;
    if (open_.data != nullptr && open_.used + record.size() > open_.bytes) {
      Complete();
    }
    if (open_.data == nullptr) {
      size_t most = 0;
      request_(&open_.data, &open_.bytes, &most);
      if (open_.data == nullptr || open_.bytes < record.size()) {
        open_ = Open{};
        ++dropped_;
        continue;
      }
    }
    std::memcpy(open_.data + open_.used, record.data(), record.size());
    open_.used += record.size();
  }
  if (!keep_last) Complete();
}

CUptiResult FakeCupti::FlushAll(uint32_t) {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter("FlushAll"); r != CUPTI_SUCCESS) return r;
  if (request_ == nullptr) return CUPTI_ERROR_INVALID_OPERATION;
  Deliver();
  if (keep_buffers_) {
    if (open_.data != nullptr) kept_.push_back(std::exchange(open_, Open{}));
  } else {
    Complete();
  }
  return CUPTI_SUCCESS;
}

void FakeCupti::ReturnKeptBuffers() {
  const Lock lock(mutex_);
  for (const Open& buffer : std::exchange(kept_, {})) {
    complete_(nullptr, 0, buffer.data, buffer.bytes, buffer.used);
  }
}

CUptiResult FakeCupti::GetNumDroppedRecords(size_t* dropped) {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter("GetNumDroppedRecords"); r != CUPTI_SUCCESS) {
    return r;
  }
  *dropped = std::exchange(dropped_, 0);
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::GetTimestamp(uint64_t* timestamp_ns) {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter("GetTimestamp"); r != CUPTI_SUCCESS) return r;
  *timestamp_ns = static_cast<uint64_t>(NowNs() + offset_ns_);
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::Finalize() {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter("Finalize"); r != CUPTI_SUCCESS) return r;
  ++finalized_;
  subscribed_ = false;
  callback_ = nullptr;
  domains_.clear();
  enabled_.clear();
  enabled_calls_.clear();
  return CUPTI_SUCCESS;
}

void FakeCupti::ProgramCalls(uint32_t cbid) {
  CUpti_CallbackData call = {};
  for (const CUpti_ApiCallbackSite site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
    CUpti_CallbackFunc callback = nullptr;
    void* user = nullptr;
    {
      const Lock lock(mutex_);
      if (domains_.contains(CUPTI_CB_DOMAIN_RUNTIME_API)) callback = callback_;
      user = user_;
    }
    call.callbackSite = site;
    if (callback != nullptr) {
      callback(user, CUPTI_CB_DOMAIN_RUNTIME_API, cbid, &call);
    }
  }
}

std::set<uint32_t> FakeCupti::enabled() const {
  const Lock lock(mutex_);
  return enabled_;
}
size_t FakeCupti::enabled_calls() const {
  const Lock lock(mutex_);
  return enabled_calls_.size();
}
bool FakeCupti::call_enabled(CUpti_CallbackDomain domain, uint32_t id) const {
  const Lock lock(mutex_);
  return enabled_calls_.contains({domain, id});
}
bool FakeCupti::subscribed() const {
  const Lock lock(mutex_);
  return subscribed_;
}
std::vector<std::string> FakeCupti::calls() const {
  const Lock lock(mutex_);
  return calls_;
}

namespace {

class FakeApi : public CuptiApi {
 public:
  explicit FakeApi(FakeCupti& fake) : fake_(fake) {}

  uint32_t version() const override { return fake_.version(); }
  std::string library() const override { return "libfakecupti.so"; }
  CUptiResult Subscribe(CUpti_SubscriberHandle* subscriber,
                        CUpti_CallbackFunc callback, void* user,
                        std::string* holder) override {
    return fake_.Subscribe(subscriber, callback, user, holder);
  }
  CUptiResult Unsubscribe(CUpti_SubscriberHandle subscriber) override {
    return fake_.Unsubscribe(subscriber);
  }
  CUptiResult EnableDomain(bool on, CUpti_SubscriberHandle subscriber,
                           CUpti_CallbackDomain domain) override {
    return fake_.EnableDomain(on, subscriber, domain);
  }
  CUptiResult GetCallbackName(CUpti_CallbackDomain domain, uint32_t id,
                              const char** name) const override {
    return fake_.GetCallbackName(domain, id, name);
  }
  CUptiResult SetThreadIdType(CUpti_ActivityThreadIdType type) override {
    return fake_.SetThreadIdType(type);
  }
  CUptiResult RegisterCallbacks(
      CUpti_BuffersCallbackRequestFunc request,
      CUpti_BuffersCallbackCompleteFunc complete) override {
    return fake_.RegisterCallbacks(request, complete);
  }
  CUptiResult Enable(CUpti_ActivityKind kind) override {
    return fake_.Enable(kind);
  }
  CUptiResult EnableAndDump(CUpti_ActivityKind kind) override {
    return fake_.Enable(kind, "EnableAndDump");
  }
  CUptiResult Disable(CUpti_ActivityKind kind) override {
    return fake_.Disable(kind);
  }
  CUptiResult EnableCall(bool on, CUpti_CallbackDomain domain,
                         uint32_t id) override {
    return fake_.EnableCall(on, domain, id);
  }
  CUptiResult EnableLatencyTimestamps(bool on) override {
    return fake_.EnableLatencyTimestamps(on);
  }
  CUptiResult FlushAll(uint32_t flag) override { return fake_.FlushAll(flag); }
  CUptiResult GetNumDroppedRecords(size_t* dropped) override {
    return fake_.GetNumDroppedRecords(dropped);
  }
  CUptiResult GetTimestamp(uint64_t* timestamp_ns) const override {
    return fake_.GetTimestamp(timestamp_ns);
  }
  CUptiResult GetNextRecord(const uint8_t* buffer, size_t valid_bytes,
                            CUpti_Activity** record) const override {
    return StepRecord(buffer, valid_bytes, fake_.version(), record);
  }
  CUptiResult Finalize() override { return fake_.Finalize(); }
  std::string NameOf(CUptiResult code) const override {
    return "CUPTI_ERROR_" + std::to_string(code);
  }

 private:
  FakeCupti& fake_;
};

}  // namespace

std::unique_ptr<CuptiApi> FakeCupti::Api() {
  return std::make_unique<FakeApi>(*this);
}

}  // namespace stepscope
