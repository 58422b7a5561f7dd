// NvtxSteps: recognises the ranges that mark steps (ListenForNvtxSteps()).
#pragma once

#include <pthread.h>
#include <stepscope/nvtx.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace stepscope {

// Any thread may call it, but only calls of the thread that opened the first
// step have an effect.
class NvtxSteps {
 public:
  NvtxSteps(std::string_view range, NvtxStepListener* listener);

  // `domain` is a handle from NvtxNames, null for the default domain.
  void OnPush(const void* domain, std::string_view name) noexcept;
  void OnPop(const void* domain) noexcept;
  void OnMark(const void* domain, std::string_view name) noexcept;
  // Returns true if the range is a step. SetStartedId() must then follow.
  bool OnStart(const void* domain, std::string_view name) noexcept;
  void SetStartedId(uint64_t id) noexcept { open_id_ = id; }
  // The id of a started step that is not recorded, because no window is open.
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
  uint64_t open_id_ = 0;  // 0: the step is a pushed range
};

}  // namespace stepscope
