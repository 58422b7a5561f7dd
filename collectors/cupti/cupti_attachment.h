// CuptiAttachment: stepscope's use of CUPTI. The collector shares it with every
// recording that is not decoded yet, because CUPTI owns the names in it. When
// the last of them is gone, CUPTI is detached from the process.
//
// That happens when some CUDA call returns, on its thread: only there is
// cuptiFinalize() safe. A program that makes no further CUDA call has no cost
// from CUPTI either. It is not done before CUDA 12.6, where it breaks existing
// CUDA graphs, nor if another profiler has subscribed meanwhile.
// docs/gpu.md says how this gets along with torch.profiler.
#pragma once

#include <absl/status/status.h>
#include <stepscope/capture_scopes.h>

#include <memory>

#include "api/cupti_api.h"

namespace stepscope {

class CuptiAttachment {
 public:
  // `detach`: whether to detach CUPTI at the end. `scopes`, if not null: while
  // CUPTI is held, ProcessGraphNodes() learns from it where graphs are
  // captured.
  CuptiAttachment(std::shared_ptr<CuptiApi> api, bool detach,
                  std::shared_ptr<CaptureScopes> scopes = nullptr);
  CuptiAttachment(const CuptiAttachment&) = delete;
  CuptiAttachment& operator=(const CuptiAttachment&) = delete;
  ~CuptiAttachment();

  // Subscribes, so that no other profiler can, and cancels a pending
  // detachment. FailedPrecondition, naming the holder, if another profiler has
  // subscribed. One thread drives Hold() and LetGo().
  absl::Status Hold();
  // Unsubscribes: torch.profiler may use CUPTI between two windows. Returns
  // CUPTI's code.
  CUptiResult LetGo();

  CuptiApi& api() { return *api_; }
  std::shared_ptr<CuptiApi> shared_api() { return api_; }
  bool follows_graphs() const {
    return scopes_ != nullptr && graph_code_ == CUPTI_SUCCESS;
  }
  // Why it does not hear of captures; CUPTI_SUCCESS if it does, or was not to.
  CUptiResult graph_code() const { return graph_code_; }

 private:
  std::shared_ptr<CuptiApi> api_;
  bool detach_;
  std::shared_ptr<CaptureScopes> scopes_;
  CUptiResult graph_code_ = CUPTI_SUCCESS;
  bool used_ = false;
  CUpti_SubscriberHandle subscriber_ = nullptr;
};

}  // namespace stepscope
