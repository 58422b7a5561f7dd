#include "graph_nodes.h"

#include <string_view>
#include <utility>

#include "api/api_calls.h"
#include "cupti_fork.h"

namespace stepscope {
namespace {

constexpr CUpti_CallbackDomain kCaptureDomains[] = {CUPTI_CB_DOMAIN_RUNTIME_API,
                                                    CUPTI_CB_DOMAIN_DRIVER_API};
constexpr CUpti_CallbackId kNodeCallbacks[] = {
    CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
    CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED};

bool BeginsCapture(std::string_view call) {
  return call.starts_with("cudaStreamBeginCapture") ||
         call.starts_with("cuStreamBeginCapture");
}
bool EndsCapture(std::string_view call) {
  return call == "cudaStreamEndCapture" || call == "cuStreamEndCapture";
}

size_t IndexOf(CUpti_CallbackDomain domain) {
  return domain == CUPTI_CB_DOMAIN_DRIVER_API ? 1 : 0;
}

// The stream is the first argument of all these calls, in the runtime as in the
// driver API.
const void* StreamOf(const CUpti_CallbackData& call) {
  return call.functionParams == nullptr
             ? nullptr
             : *static_cast<const void* const*>(call.functionParams);
}

// cudaSuccess and CUDA_SUCCESS are 0.
bool Succeeded(const CUpti_CallbackData& call) {
  return call.functionReturnValue != nullptr &&
         *static_cast<const int*>(call.functionReturnValue) == 0;
}

}  // namespace

CUptiResult GraphNodes::Listen(const std::shared_ptr<CuptiApi>& api,
                               CUpti_SubscriberHandle subscriber,
                               std::shared_ptr<CaptureScopes> scopes) {
  std::set<uint32_t> begins[2];
  std::set<uint32_t> ends[2];
  for (const CUpti_CallbackDomain domain : kCaptureDomains) {
    for (const uint32_t id : CallsThat(*api, domain, &BeginsCapture)) {
      begins[IndexOf(domain)].insert(id);
    }
    for (const uint32_t id : CallsThat(*api, domain, &EndsCapture)) {
      ends[IndexOf(domain)].insert(id);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    api_ = api;
    scopes_ = std::move(scopes);
    for (size_t i = 0; i < 2; ++i) {
      begins_[i] = begins[i];
      ends_[i] = ends[i];
    }
  }
  // The callbacks for nodes are switched on last. If one of these calls fails,
  // the callbacks that are already on have no effect.
  for (const CUpti_CallbackDomain domain : kCaptureDomains) {
    for (const auto* ids : {&ends[IndexOf(domain)], &begins[IndexOf(domain)]}) {
      for (const uint32_t id : *ids) {
        // Not an error: a variant that the library knows only by name.
        const CUptiResult code =
            api->EnableCallback(true, subscriber, domain, id);
        if (code == CUPTI_SUCCESS || code == CUPTI_ERROR_INVALID_PARAMETER) {
          continue;
        }
        StopListening();
        return code;
      }
    }
  }
  for (const CUpti_CallbackId id : kNodeCallbacks) {
    const CUptiResult code =
        api->EnableCallback(true, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id);
    if (code == CUPTI_SUCCESS) continue;
    StopListening();
    return code;
  }
  return CUPTI_SUCCESS;
}

void GraphNodes::StopListening() {
  std::shared_ptr<CuptiApi> api;
  std::shared_ptr<CaptureScopes> scopes;
  bool was_capturing = false;
  {
    const std::lock_guard lock(mutex_);
    api = std::exchange(api_, nullptr);
    scopes = std::exchange(scopes_, nullptr);
    was_capturing = !std::exchange(capturing_, {}).empty();
  }
  if (was_capturing && scopes != nullptr) scopes->End();
}

void GraphNodes::On(CUpti_CallbackDomain domain, CUpti_CallbackId id,
                    const void* details) {
  if (details == nullptr) return;
  if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
    if (id != CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED &&
        id != CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) {
      return;
    }
    const auto* const resource =
        static_cast<const CUpti_ResourceData*>(details);
    if (resource->resourceDescriptor == nullptr) return;
    OnNode(id,
           *static_cast<const CUpti_GraphData*>(resource->resourceDescriptor));
  } else if (domain == CUPTI_CB_DOMAIN_RUNTIME_API ||
             domain == CUPTI_CB_DOMAIN_DRIVER_API) {
    OnCapture(domain, id, *static_cast<const CUpti_CallbackData*>(details));
  }
}

// Records the place of a new node. The nodes of a replay are copies, often of
// copies: instantiating a graph copies the captured graph, which may contain
// copies of the graphs captured inside it.
void GraphNodes::OnNode(CUpti_CallbackId id, const CUpti_GraphData& graph) {
  std::shared_ptr<CuptiApi> api;
  std::shared_ptr<CaptureScopes> scopes;
  {
    const std::lock_guard lock(mutex_);
    api = api_;
    scopes = scopes_;
  }
  const bool is_copy = id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED;
  const bool is_kernel = graph.nodeType == CU_GRAPH_NODE_TYPE_KERNEL;
  if (api == nullptr || (!is_copy && (!is_kernel || scopes == nullptr))) return;
  const auto id_of = [&](CUgraphNode of, uint64_t* number) {
    return of != nullptr && api->GetGraphNodeId(of, number) == CUPTI_SUCCESS;
  };
  uint64_t node = 0;
  if (!id_of(graph.node, &node)) return;
  if (is_copy) {
    uint64_t original = 0;
    if (!id_of(graph.originalNode, &original)) return;
    const std::lock_guard lock(mutex_);
    const auto known = place_of_node_.find(original);
    if (known != place_of_node_.end()) Put(node, uint32_t{known->second});
    return;
  }
  const CapturedAt at = scopes->Here();
  if (at.empty()) return;
  const std::lock_guard lock(mutex_);
  Put(node, PlaceOf(at));
}

// Notes where captures begin and end. A call of the runtime makes a call of the
// driver, and both come here, so the second one is ignored.
void GraphNodes::OnCapture(CUpti_CallbackDomain domain, CUpti_CallbackId id,
                           const CUpti_CallbackData& call) {
  if (call.callbackSite != CUPTI_API_EXIT) return;
  std::shared_ptr<CaptureScopes> scopes;
  bool began = false;
  {
    const std::lock_guard lock(mutex_);
    if (scopes_ == nullptr) return;
    if (begins_[IndexOf(domain)].contains(id)) {
      if (!Succeeded(call) || !capturing_.insert(StreamOf(call)).second ||
          capturing_.size() > 1) {
        return;
      }
      began = true;
    } else if (!ends_[IndexOf(domain)].contains(id) ||
               capturing_.erase(StreamOf(call)) == 0 || !capturing_.empty()) {
      return;
    }
    scopes = scopes_;
  }
  if (began) {
    scopes->Begin();
  } else {
    scopes->End();
  }
}

// Returns kMostPlaces if there is no room for another place. REQUIRES: the lock
// is held.
uint32_t GraphNodes::PlaceOf(const CapturedAt& at) {
  std::string key = at.module;
  for (const std::string& op : at.ops) key.append(1, '\n').append(op);
  const auto known = place_index_.find(key);
  if (known != place_index_.end()) return known->second;
  if (places_.size() == kMostPlaces) return kMostPlaces;
  const auto place = static_cast<uint32_t>(places_.size());
  places_.push_back(at);
  place_index_.emplace(std::move(key), place);
  return place;
}

// REQUIRES: the lock is held.
void GraphNodes::Put(uint64_t node, uint32_t place) {
  const auto [at, is_new] = place_of_node_.insert_or_assign(node, place);
  if (!is_new) return;
  oldest_.push_back(node);
  if (oldest_.size() <= most_nodes_) return;
  place_of_node_.erase(oldest_.front());
  oldest_.pop_front();
}

const CapturedAt* GraphNodes::Find(uint64_t node) const {
  const std::lock_guard lock(mutex_);
  const auto known = place_of_node_.find(node);
  if (known == place_of_node_.end() || known->second >= places_.size()) {
    return nullptr;
  }
  return &places_[known->second];
}

size_t GraphNodes::size() const {
  const std::lock_guard lock(mutex_);
  return place_of_node_.size();
}

GraphNodes& ProcessGraphNodes() {
  static GraphNodes* const nodes = new GraphNodes;
  return *nodes;
}

// Must not throw into CUPTI. Without memory, the node has no place.
void CUPTIAPI OnGraphEvent(void*, CUpti_CallbackDomain domain,
                           CUpti_CallbackId id, const void* details) {
  if (InForkedChild()) return;
  try {
    ProcessGraphNodes().On(domain, id, details);
  } catch (...) {
  }
}

}  // namespace stepscope
