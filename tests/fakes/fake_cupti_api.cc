// FakeCupti behind the interface that the collector uses.
#include <memory>
#include <string>

#include "fakes/fake_counters.h"
#include "fakes/fake_cupti.h"

namespace stepscope {
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
  CUptiResult EnableCallback(bool on, CUpti_SubscriberHandle subscriber,
                             CUpti_CallbackDomain domain,
                             uint32_t id) override {
    return fake_.EnableCallback(on, subscriber, domain, id);
  }
  CUptiResult GetGraphNodeId(CUgraphNode node, uint64_t* id) const override {
    return fake_.GetGraphNodeId(node, id);
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
  CUptiResult EnableAllSyncRecords(bool on) override {
    return fake_.EnableAllSyncRecords(on);
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
  const CounterFunctions* counters(std::string* missing) const override {
    constexpr uint32_t kHasCounters = 24;  // CUDA 12.6
    if (fake_.version() >= kHasCounters) return &FakeCounters::Functions();
    *missing = "cuptiProfilerHostInitialize";
    return nullptr;
  }
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
