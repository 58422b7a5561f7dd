#include "nvtx_steps.h"

#include "nvtx_names.h"

namespace stepscope {

NvtxSteps::NvtxSteps(std::string_view range, NvtxStepListener* listener)
    : listener_(listener) {
  const size_t at = range.rfind('@');
  name_ = range.substr(0, at);
  if (at != std::string_view::npos) {
    domain_name_ = range.substr(at + 1);
    any_domain_ = false;
  }
}

bool NvtxSteps::Matches(const void* domain, std::string_view name) const {
  if (name != name_) return false;
  if (any_domain_) return true;
  return domain != nullptr && NvtxNames::TextOf(domain) == domain_name_;
}

// True on the thread that owns the steps: the first thread that opens a step
// and therefore calls this first. A training loop runs on one thread, so ranges
// of the same name on other threads are not its steps.
bool NvtxSteps::IsOwner() noexcept {
  const pthread_t self = pthread_self();
  bool expected = false;
  if (!owned_.load(std::memory_order_acquire) &&
      owned_.compare_exchange_strong(expected, true)) {
    owner_.store(self, std::memory_order_release);
    return true;
  }
  return pthread_equal(owner_.load(std::memory_order_acquire), self) != 0;
}

void NvtxSteps::OnPush(const void* domain, std::string_view name) noexcept {
  if (owned_.load(std::memory_order_acquire)) {
    if (!IsOwner()) return;
    if (open_) {
      // Other ranges may be pushed inside the step, in the same domain. Count
      // them, because their pops must not end the step.
      if (open_id_ == 0 && domain == open_domain_) ++depth_;
      return;
    }
  }
  if (!Matches(domain, name) || !IsOwner()) return;
  open_ = true;
  open_domain_ = domain;
  open_id_ = 0;
  depth_ = 0;
  listener_->OnStepBegin();
}

void NvtxSteps::OnPop(const void* domain) noexcept {
  if (!owned_.load(std::memory_order_acquire) || !IsOwner()) return;
  if (!open_ || open_id_ != 0 || domain != open_domain_) return;
  if (depth_ > 0) {
    --depth_;
    return;
  }
  open_ = false;
  listener_->OnStepEnd();
}

// A mark has no end, so a step lasts from one mark to the next.
void NvtxSteps::OnMark(const void* domain, std::string_view name) noexcept {
  if (!Matches(domain, name) || !IsOwner() || open_) return;
  if (marked_) listener_->OnStepEnd();
  marked_ = true;
  listener_->OnStepBegin();
}

bool NvtxSteps::OnStart(const void* domain, std::string_view name) noexcept {
  if (!Matches(domain, name) || !IsOwner() || open_) return false;
  open_ = true;
  open_domain_ = domain;
  open_id_ = kUnrecordedId;
  listener_->OnStepBegin();
  return true;
}

void NvtxSteps::OnEnd(uint64_t id) noexcept {
  if (!owned_.load(std::memory_order_acquire) || !IsOwner()) return;
  if (!open_ || open_id_ == 0 || open_id_ != id) return;
  open_ = false;
  listener_->OnStepEnd();
}

}  // namespace stepscope
