// CuptiAttachment: stepscope's use of CUPTI. The collector shares it with all
// recordings that are not decoded yet, because CUPTI owns the names in them.
// When the last of them is gone, CUPTI is detached from the process.
//
// The detachment happens when some CUDA call returns, on that call's thread,
// because only there cuptiFinalize() is safe. (If the program makes no further
// CUDA call, CUPTI costs it nothing anyway.) Before CUDA 12.6 CUPTI is not
// detached, because that would break existing CUDA graphs. It is not detached
// either if another profiler has subscribed meanwhile. docs/gpu.md explains how
// this works together with torch.profiler.
#pragma once

#include <absl/status/status.h>
#include <stepscope/capture_scopes.h>

#include <memory>

#include "api/cupti_api.h"

namespace stepscope {

class CuptiAttachment {
 public:
  // `detach`: whether to detach CUPTI at the end. If `scopes` is not null,
  // ProcessGraphNodes() learns where graphs are captured while CUPTI is held.
  CuptiAttachment(std::shared_ptr<CuptiApi> api, bool detach,
                  std::shared_ptr<CaptureScopes> scopes = nullptr);
  CuptiAttachment(const CuptiAttachment&) = delete;
  CuptiAttachment& operator=(const CuptiAttachment&) = delete;
  ~CuptiAttachment();

  // Subscribes, so that no other profiler can, and cancels a pending
  // detachment. FailedPrecondition, with the holder's name, if another profiler
  // has subscribed. Hold() and LetGo() are called by one thread.
  absl::Status Hold();
  // Unsubscribes, so that torch.profiler may use CUPTI between two windows.
  // Returns CUPTI's code.
  CUptiResult LetGo();

  CuptiApi& api() { return *api_; }
  std::shared_ptr<CuptiApi> shared_api() { return api_; }
  bool follows_graphs() const {
    return scopes_ != nullptr && graph_code_ == CUPTI_SUCCESS;
  }
  // Why captures are not followed; CUPTI_SUCCESS if they are, or were not
  // wanted.
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
