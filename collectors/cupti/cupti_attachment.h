// CuptiAttachment: our hold on CUPTI. Shared by the collector and by every
// recording not yet decoded, whose names CUPTI owns; when the last of them is
// gone, CUPTI is told to leave the process.
//
// That happens as some CUDA call returns, on its thread: the one place where
// cuptiFinalize() is safe. A program that makes no more CUDA calls pays nothing
// for it. It is not done before CUDA 12.6, where graphs that live do not
// survive it, nor when another profiler has subscribed in the meantime.
#pragma once

#include <absl/status/status.h>

#include <memory>

#include "api/cupti_api.h"

namespace stepscope {

class CuptiAttachment {
 public:
  // `detach`: whether CUPTI shall leave at the end.
  CuptiAttachment(std::shared_ptr<CuptiApi> api, bool detach);
  CuptiAttachment(const CuptiAttachment&) = delete;
  CuptiAttachment& operator=(const CuptiAttachment&) = delete;
  ~CuptiAttachment();

  // Subscribes, so that no other profiler can, and calls off a leave-taking
  // that has not happened yet. FailedPrecondition, naming the holder, if
  // another is there. One thread drives Hold() and LetGo().
  absl::Status Hold();
  // Unsubscribes: torch.profiler may use CUPTI between our windows. The code of
  // the failure, if any.
  CUptiResult LetGo();

  CuptiApi& api() { return *api_; }

 private:
  std::shared_ptr<CuptiApi> api_;
  bool detach_;
  bool used_ = false;
  CUpti_SubscriberHandle subscriber_ = nullptr;
};

}  // namespace stepscope
