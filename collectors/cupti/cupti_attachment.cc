#include "cupti_attachment.h"

#include <mutex>
#include <string>
#include <utility>

#include "api/cupti_status.h"
#include "cupti_fork.h"
#include "graph_nodes.h"

namespace stepscope {
namespace {

// A pending detachment, which waits for a CUDA call to return. There is at most
// one. Its mutex is never held during a call of CUPTI, because CUPTI may wait
// for its callbacks.
struct Leaving {
  std::shared_ptr<CuptiApi> api;
  CUpti_SubscriberHandle subscriber = nullptr;
};
std::mutex g_mutex;
std::unique_ptr<Leaving> g_leaving;
// Held while a detachment is prepared, carried out or called off. Callbacks do
// not wait for it, because CUPTI may wait for them: the next CUDA call tries
// again.
std::mutex g_leaves_now;

std::unique_ptr<Leaving> TakeLeaving() {
  const std::lock_guard lock(g_mutex);
  return std::move(g_leaving);
}

constexpr CUpti_CallbackDomain kCallDomains[] = {CUPTI_CB_DOMAIN_RUNTIME_API,
                                                 CUPTI_CB_DOMAIN_DRIVER_API};

// Called at every CUDA call while a detachment is pending, on the thread that
// makes the call. It must not wait for a detachment on another thread, because
// cuptiFinalize() waits for running callbacks.
void CUPTIAPI OnCudaCall(void*, CUpti_CallbackDomain domain, CUpti_CallbackId,
                         const void* details) {
  if (InForkedChild()) return;
  if (domain != CUPTI_CB_DOMAIN_RUNTIME_API &&
      domain != CUPTI_CB_DOMAIN_DRIVER_API) {
    return;
  }
  const auto* call = static_cast<const CUpti_CallbackData*>(details);
  if (call->callbackSite != CUPTI_API_EXIT) return;
  const std::unique_lock busy(g_leaves_now, std::try_to_lock);
  if (!busy.owns_lock()) return;
  const std::unique_ptr<Leaving> leaving = TakeLeaving();
  if (leaving == nullptr) return;
  // Unsubscribe first, so that no further callback begins.
  (void)leaving->api->Unsubscribe(leaving->subscriber);
  (void)leaving->api->Finalize();
}

void LeaveAtNextCall(std::shared_ptr<CuptiApi> api) {
  // Once the first domain is on, a CUDA call of another thread may detach
  // CUPTI, which must not happen while this thread calls it.
  const std::lock_guard preparing(g_leaves_now);
  CUpti_SubscriberHandle subscriber = nullptr;
  std::string holder;
  // If another profiler has subscribed meanwhile, it needs CUPTI.
  if (api->Subscribe(&subscriber, &OnCudaCall, nullptr, &holder) !=
      CUPTI_SUCCESS) {
    return;
  }
  auto leaving = std::make_unique<Leaving>();
  leaving->api = api;
  leaving->subscriber = subscriber;
  {
    const std::lock_guard lock(g_mutex);
    g_leaving = std::move(leaving);
  }
  // Both domains, because a program may launch everything through the driver
  // API.
  bool is_on = false;
  for (const CUpti_CallbackDomain domain : kCallDomains) {
    const CUptiResult code = api->EnableDomain(true, subscriber, domain);
    is_on = is_on || code == CUPTI_SUCCESS;
  }
  if (is_on) return;
  // The callbacks could not be switched on, so the detachment would never
  // happen.
  if (TakeLeaving() != nullptr) (void)api->Unsubscribe(subscriber);
}

// Cancels a pending detachment. Returns its subscription if CUPTI failed to end
// it, otherwise null.
CUpti_SubscriberHandle CallOffLeaving() {
  const std::lock_guard wait_for_it(g_leaves_now);
  const std::unique_ptr<Leaving> leaving = TakeLeaving();
  if (leaving == nullptr) return nullptr;
  CuptiApi& api = *leaving->api;
  if (api.Unsubscribe(leaving->subscriber) == CUPTI_SUCCESS) return nullptr;
  for (const CUpti_CallbackDomain domain : kCallDomains) {
    (void)api.EnableDomain(false, leaving->subscriber, domain);
  }
  return leaving->subscriber;
}

}  // namespace

CuptiAttachment::CuptiAttachment(std::shared_ptr<CuptiApi> api, bool detach,
                                 std::shared_ptr<CaptureScopes> scopes)
    : api_(std::move(api)),
      detach_(detach && api_->version() >= kCuptiDetachesFromGraphs),
      scopes_(std::move(scopes)) {}

CuptiAttachment::~CuptiAttachment() {
  if (InForkedChild()) return;
  (void)LetGo();
  if (used_ && detach_) LeaveAtNextCall(std::move(api_));
}

// Subscribing excludes other users of CUPTI, but only during the window.
// Between windows torch.profiler may use CUPTI.
absl::Status CuptiAttachment::Hold() {
  if (subscriber_ != nullptr) return absl::OkStatus();
  if (subscriber_ = CallOffLeaving(); subscriber_ != nullptr) {
    used_ = true;
    return absl::OkStatus();
  }
  std::string holder;
  WatchForks();
  // A subscription needs a callback, even if only activity records are used.
  const CUptiResult code =
      api_->Subscribe(&subscriber_, &OnGraphEvent, nullptr, &holder);
  if (code != CUPTI_SUCCESS) {
    subscriber_ = nullptr;
    return CuptiError(*api_, "subscribe", code, holder);
  }
  used_ = true;
  if (scopes_ != nullptr) {
    graph_code_ = ProcessGraphNodes().Listen(api_, subscriber_, scopes_);
  }
  return absl::OkStatus();
}

CUptiResult CuptiAttachment::LetGo() {
  if (subscriber_ == nullptr) return CUPTI_SUCCESS;
  const CUptiResult code = api_->Unsubscribe(subscriber_);
  // The subscription still exists; the next Hold() reuses it.
  if (code != CUPTI_SUCCESS) return code;
  subscriber_ = nullptr;
  if (scopes_ != nullptr) ProcessGraphNodes().StopListening();
  return code;
}

}  // namespace stepscope
