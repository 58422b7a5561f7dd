#include "gpu/under_cupti.h"

#include <cupti.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/api_calls.h"
#include "api/cupti_api.h"
#include "api/cupti_status.h"

namespace stepscope {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

void CUPTIAPI Request(uint8_t** buffer, size_t* bytes, size_t* most) {
  *buffer = static_cast<uint8_t*>(std::malloc(kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most = 0;
}
void CUPTIAPI Complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t) {
  std::free(buffer);
}
void CUPTIAPI Ignore(void*, CUpti_CallbackDomain, CUpti_CallbackId,
                     const void*) {}

}  // namespace

absl::Status UnderCupti(CuptiPart part, const std::function<void()>& work) {
  absl::StatusOr<std::unique_ptr<CuptiApi>> loaded = LoadCupti();
  if (!loaded.ok()) return loaded.status();
  CuptiApi& api = **loaded;
  std::vector<CUpti_ActivityKind> kinds;
  if (part >= CuptiPart::kKernels) {
    kinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
             CUPTI_ACTIVITY_KIND_MEMSET};
  }
  if (part >= CuptiPart::kLaunchCalls) {
    kinds.push_back(CUPTI_ACTIVITY_KIND_RUNTIME);
  }
  CUpti_SubscriberHandle subscriber = nullptr;
  std::string holder;
  CUptiResult code = api.Subscribe(&subscriber, &Ignore, nullptr, &holder);
  if (code != CUPTI_SUCCESS) return CuptiError(api, "subscribe", code, holder);
  code = api.RegisterCallbacks(&Request, &Complete);
  for (const CUpti_ActivityKind kind : kinds) {
    if (code == CUPTI_SUCCESS) code = api.Enable(kind);
  }
  if (part == CuptiPart::kLaunchCalls) {
    for (const uint32_t id :
         CallsToLeaveOut(api, CUPTI_CB_DOMAIN_RUNTIME_API)) {
      (void)api.EnableCall(false, CUPTI_CB_DOMAIN_RUNTIME_API, id);
    }
  }
  if (code == CUPTI_SUCCESS) work();
  for (const CUpti_ActivityKind kind : kinds) (void)api.Disable(kind);
  (void)api.FlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  (void)api.Unsubscribe(subscriber);
  (void)api.Finalize();
  return code == CUPTI_SUCCESS ? absl::OkStatus()
                               : CuptiError(api, "switch on its parts", code);
}

}  // namespace stepscope
