// NvtxSteps: picks out the ranges that mark steps (ListenForNvtxSteps()).
#pragma once

#include <pthread.h>
#include <stepscope/nvtx.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace stepscope {

// Any thread may call it; only the calls of the thread that ran the first step
// count.
class NvtxSteps {
 public:
  NvtxSteps(std::string_view range, NvtxStepListener* listener);

  // `domain` is a handle from NvtxNames, null for the default domain.
  void OnPush(const void* domain, std::string_view name) noexcept;
  void OnPop(const void* domain) noexcept;
  void OnMark(const void* domain, std::string_view name) noexcept;
  // True if that range is a step; then SetStartedId() must follow.
  bool OnStart(const void* domain, std::string_view name) noexcept;
  void SetStartedId(uint64_t id) noexcept { open_id_ = id; }
  // The id of a step outside a recorded window.
  static constexpr uint64_t kUnrecordedId = 1;
  void OnEnd(uint64_t id) noexcept;

 private:
  bool Matches(const void* domain, std::string_view name) const;
  bool IsOwner() noexcept;

  std::string name_;
  std::string domain_name_;
  bool any_domain_ = true;
  NvtxStepListener* const listener_;
  std::atomic<bool> owned_{false};
  std::atomic<pthread_t> owner_{};
  // Only the owner uses the rest.
  bool open_ = false;
  bool marked_ = false;
  const void* open_domain_ = nullptr;
  int depth_ = 0;         // ranges pushed inside the step, in its domain
  uint64_t open_id_ = 0;  // 0: it was pushed
};

}  // namespace stepscope
