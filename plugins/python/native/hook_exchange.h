// A RankExchange whose store is reached through two functions of the caller's
// language (stepscope_exchange() in stepscope_c.h).
#pragma once

#include <stepscope/rank_exchange.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "stepscope_c.h"

namespace stepscope {

struct ExchangeHook {
  stepscope_put put = nullptr;
  stepscope_get get = nullptr;
  void* user = nullptr;
};

class HookExchange final : public RankExchange {
 public:
  explicit HookExchange(const ExchangeHook& hook) : hook_(hook) {}

  absl::Status Put(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::optional<std::string>> Get(
      const std::string& key) override;

  // Makes no calls from now on, because the interpreter may end. Waits for a
  // call in progress, at most `patience`.
  void Close(std::chrono::milliseconds patience);

 private:
  const ExchangeHook hook_;
  std::atomic<bool> closed_{false};
  std::timed_mutex call_;  // held during a call
};

}  // namespace stepscope
