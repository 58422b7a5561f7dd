// A file of CUPTI record buffers that a GPU's driver filled. Tests of the
// decoder use it on machines without a GPU.
//
// Format: "stepscope cupti 1\n", then in the machine's byte order: the CUPTI
// version (4 bytes) and the number of buffers (4); for each buffer its length
// (8) and its bytes; the number of texts (4); for each text the address by
// which records refer to it (8), its length (4) and its bytes.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "api/cupti_api.h"

namespace stepscope {

struct RecordedCupti {
  uint32_t version = 0;
  std::vector<std::vector<uint8_t>> buffers;
  std::map<uint64_t, std::string> texts;  // by address

  // Returns the text that records refer to by this address; empty if unknown.
  std::string_view TextAt(const char* address) const;
};

// Errors: Unavailable if the file cannot be written or opened, DataLoss if it
// is cut or is not such a file.
absl::Status WriteRecorded(const RecordedCupti& recorded,
                           const std::string& path);
absl::StatusOr<RecordedCupti> ReadRecorded(const std::string& path);

// Passes all calls on to another CUPTI and keeps a copy of each returned
// buffer. At most one may exist at a time. Buffers may arrive on any thread.
class SavingCupti : public CuptiApi {
 public:
  explicit SavingCupti(std::unique_ptr<CuptiApi> inner);
  ~SavingCupti() override;

  // Returns the buffers so far and the texts that records refer to. Call it
  // before CUPTI is detached, because the texts must still exist.
  RecordedCupti Recorded() const;

  uint32_t version() const override { return inner_->version(); }
  std::string library() const override { return inner_->library(); }
  CUptiResult Subscribe(CUpti_SubscriberHandle* subscriber,
                        CUpti_CallbackFunc callback, void* user,
                        std::string* holder) override {
    return inner_->Subscribe(subscriber, callback, user, holder);
  }
  CUptiResult Unsubscribe(CUpti_SubscriberHandle subscriber) override {
    return inner_->Unsubscribe(subscriber);
  }
  CUptiResult EnableDomain(bool on, CUpti_SubscriberHandle subscriber,
                           CUpti_CallbackDomain domain) override {
    return inner_->EnableDomain(on, subscriber, domain);
  }
  CUptiResult GetCallbackName(CUpti_CallbackDomain domain, uint32_t id,
                              const char** name) const override {
    return inner_->GetCallbackName(domain, id, name);
  }
  CUptiResult SetThreadIdType(CUpti_ActivityThreadIdType type) override {
    return inner_->SetThreadIdType(type);
  }
  CUptiResult RegisterCallbacks(
      CUpti_BuffersCallbackRequestFunc request,
      CUpti_BuffersCallbackCompleteFunc complete) override;
  CUptiResult Enable(CUpti_ActivityKind kind) override {
    return inner_->Enable(kind);
  }
  CUptiResult EnableAndDump(CUpti_ActivityKind kind) override {
    return inner_->EnableAndDump(kind);
  }
  CUptiResult Disable(CUpti_ActivityKind kind) override {
    return inner_->Disable(kind);
  }
  CUptiResult EnableCall(bool on, CUpti_CallbackDomain domain,
                         uint32_t id) override {
    return inner_->EnableCall(on, domain, id);
  }
  CUptiResult EnableLatencyTimestamps(bool on) override {
    return inner_->EnableLatencyTimestamps(on);
  }
  CUptiResult FlushAll(uint32_t flag) override {
    return inner_->FlushAll(flag);
  }
  CUptiResult GetNumDroppedRecords(size_t* dropped) override {
    return inner_->GetNumDroppedRecords(dropped);
  }
  CUptiResult GetTimestamp(uint64_t* timestamp_ns) const override {
    return inner_->GetTimestamp(timestamp_ns);
  }
  CUptiResult GetNextRecord(const uint8_t* buffer, size_t valid_bytes,
                            CUpti_Activity** record) const override {
    return inner_->GetNextRecord(buffer, valid_bytes, record);
  }
  CUptiResult Finalize() override { return inner_->Finalize(); }
  std::string NameOf(CUptiResult code) const override {
    return inner_->NameOf(code);
  }

 private:
  static void CUPTIAPI Complete(CUcontext context, uint32_t stream,
                                uint8_t* buffer, size_t bytes,
                                size_t valid_bytes);

  std::unique_ptr<CuptiApi> inner_;
  mutable std::mutex mutex_;
  std::vector<std::vector<uint8_t>> buffers_;
};

}  // namespace stepscope
