// GraphNodes: knows where in the program each kernel of a CUDA graph was
// captured. The key is the id of the kernel's node, which CUPTI writes into the
// kernel's record at every replay (graphNodeId).
//
// CUPTI's callbacks tell when a node is created (on the capturing thread,
// inside the call that was captured) and when it is copied. Instantiating a
// graph copies all its nodes, and the copies are what runs. The callbacks come
// as long as CUPTI is subscribed to (CuptiAttachment), and cost nothing while
// no graph is made.
//
// There is one object per process, which outlives every collector, because
// graphs captured in one window are replayed in the next. Any thread may call
// it.
#pragma once

#include <stepscope/capture_scopes.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/cupti_api.h"

namespace stepscope {

class GraphNodes {
 public:
  // The oldest nodes beyond this number are forgotten. Takes about 20 MB.
  static constexpr size_t kMostNodes = size_t{1} << 18;
  // The most distinct places. Later ones count as unknown.
  static constexpr size_t kMostPlaces = size_t{1} << 16;

  explicit GraphNodes(size_t most_nodes = kMostNodes)
      : most_nodes_(most_nodes) {}

  // Switches on the callbacks of `subscriber`, whose function must be
  // OnGraphEvent(). Returns the code of the first call that failed; callbacks
  // that are on by then do nothing. REQUIRES: this is ProcessGraphNodes().
  CUptiResult Listen(const std::shared_ptr<CuptiApi>& api,
                     CUpti_SubscriberHandle subscriber,
                     std::shared_ptr<CaptureScopes> scopes);
  // Call when the subscriber is gone. Known places stay known.
  void StopListening();

  // Takes the arguments of a CUpti_CallbackFunc.
  void On(CUpti_CallbackDomain domain, CUpti_CallbackId id,
          const void* details);

  // Returns where the node was captured, or null if that is unknown. Places are
  // never freed.
  const CapturedAt* Find(uint64_t node) const;
  size_t size() const;

 private:
  void OnNode(CUpti_CallbackId id, const CUpti_GraphData& graph);
  void OnCapture(CUpti_CallbackDomain domain, CUpti_CallbackId id,
                 const CUpti_CallbackData& call);
  uint32_t PlaceOf(const CapturedAt& at);
  void Put(uint64_t node, uint32_t place);

  const size_t most_nodes_;
  mutable std::mutex mutex_;  // never held while CUPTI or `scopes_` is called
  std::shared_ptr<CuptiApi> api_;
  std::shared_ptr<CaptureScopes> scopes_;
  // By domain: the ids of the calls that begin and end a capture.
  std::set<uint32_t> begins_[2];
  std::set<uint32_t> ends_[2];
  std::set<const void*> capturing_;  // streams
  std::unordered_map<uint64_t, uint32_t> place_of_node_;
  std::deque<uint64_t> oldest_;
  std::deque<CapturedAt> places_;
  std::unordered_map<std::string, uint32_t> place_index_;
};

// Never destroyed, because a callback may run while the process ends.
GraphNodes& ProcessGraphNodes();

// A subscriber's callback that forwards to ProcessGraphNodes().
void CUPTIAPI OnGraphEvent(void*, CUpti_CallbackDomain domain,
                           CUpti_CallbackId id, const void* details);

}  // namespace stepscope
