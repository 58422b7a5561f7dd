// FakeCupti's callbacks: the program's actions and what the subscriber is told.
#include <bit>

#include "fakes/fake_cupti.h"

namespace stepscope {
namespace {

// CUPTI's numbers of the calls that capture a graph.
struct CaptureCalls {
  CUpti_CallbackDomain domain;
  uint32_t begin;
  uint32_t end;
};
constexpr CaptureCalls kRuntime = {CUPTI_CB_DOMAIN_RUNTIME_API, 315, 319};
constexpr CaptureCalls kDriver = {CUPTI_CB_DOMAIN_DRIVER_API, 539, 497};

// Handles are opaque. The fake uses the IDs as handles.
CUgraphNode HandleOf(uint64_t node) { return std::bit_cast<CUgraphNode>(node); }

}  // namespace

CUptiResult FakeCupti::EnableDomain(bool on, CUpti_SubscriberHandle subscriber,
                                    CUpti_CallbackDomain domain) {
  {
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
  }
  if (on && during_enable_domain_) during_enable_domain_();
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::EnableCallback(bool on,
                                      CUpti_SubscriberHandle subscriber,
                                      CUpti_CallbackDomain domain,
                                      uint32_t id) {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter("EnableCallback"); r != CUPTI_SUCCESS) return r;
  if (!subscribed_ || subscriber == nullptr) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (on) {
    callbacks_.emplace(domain, id);
  } else {
    callbacks_.erase({domain, id});
  }
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::GetGraphNodeId(CUgraphNode node, uint64_t* id) {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter("GetGraphNodeId"); r != CUPTI_SUCCESS) return r;
  if (node == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *id = reinterpret_cast<uint64_t>(node);
  return CUPTI_SUCCESS;
}

void FakeCupti::Tell(CUpti_CallbackDomain domain, uint32_t id,
                     const void* details) {
  CUpti_CallbackFunc callback = nullptr;
  void* user = nullptr;
  {
    const Lock lock(mutex_);
    if (domains_.contains(domain) || callbacks_.contains({domain, id})) {
      callback = callback_;
    }
    user = user_;
    if (callback == nullptr) return;
    ++in_callback_[std::this_thread::get_id()];
  }
  callback(user, domain, id, details);
  {
    const Lock lock(mutex_);
    --in_callback_[std::this_thread::get_id()];
  }
  callback_ended_.notify_all();
}

void FakeCupti::ProgramCalls(uint32_t cbid, CUpti_CallbackDomain domain) {
  CUpti_CallbackData call = {};
  for (const CUpti_ApiCallbackSite site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
    call.callbackSite = site;
    Tell(domain, cbid, &call);
  }
}

void FakeCupti::ReenterCallback() {
  CUpti_CallbackData call = {};
  call.callbackSite = CUPTI_API_EXIT;
  CUpti_CallbackFunc callback = nullptr;
  {
    const Lock lock(mutex_);
    callback = last_callback_;
    ++in_callback_[std::this_thread::get_id()];
  }
  ++callbacks_entered_;
  callback(nullptr, CUPTI_CB_DOMAIN_RUNTIME_API, 211, &call);
  {
    const Lock lock(mutex_);
    --in_callback_[std::this_thread::get_id()];
  }
  callback_ended_.notify_all();
}

// A call of the runtime calls the driver inside.
void FakeCupti::CaptureCall(bool begins, uintptr_t stream, int code) {
  const struct {
    uintptr_t stream;
    uint64_t rest = 0xEEEEEEEE;
  } arguments = {.stream = stream};
  CUpti_CallbackData call = {};
  call.functionParams = &arguments;
  const auto tell = [&](const CaptureCalls& of, CUpti_ApiCallbackSite site) {
    call.callbackSite = site;
    // A call has no result yet when it starts.
    call.functionReturnValue = site == CUPTI_API_EXIT ? &code : nullptr;
    Tell(of.domain, begins ? of.begin : of.end, &call);
  };
  tell(kRuntime, CUPTI_API_ENTER);
  tell(kDriver, CUPTI_API_ENTER);
  tell(kDriver, CUPTI_API_EXIT);
  tell(kRuntime, CUPTI_API_EXIT);
}

void FakeCupti::CreateNode(uint64_t node, CUgraphNodeType type) {
  CUpti_GraphData graph = {};
  graph.node = HandleOf(node);
  graph.nodeType = type;
  CUpti_ResourceData resource = {};
  resource.resourceDescriptor = &graph;
  // The ID is unknown before the node exists.
  Tell(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATE_STARTING,
       &resource);
  Tell(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
       &resource);
}

void FakeCupti::CloneNode(uint64_t node, uint64_t original) {
  CUpti_GraphData graph = {};
  graph.node = HandleOf(node);
  graph.originalNode = HandleOf(original);
  graph.nodeType = CU_GRAPH_NODE_TYPE_EMPTY;  // unknown for copies
  CUpti_ResourceData resource = {};
  resource.resourceDescriptor = &graph;
  Tell(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
       &resource);
}

}  // namespace stepscope
