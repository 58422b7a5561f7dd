#include "hook_exchange.h"

#include <absl/status/status.h>
#include <stepscope/rank_digest.h>

#include <vector>

namespace stepscope {
namespace {

// A program without a store gets FailedPrecondition: this is not an error, and
// the profile uses files without a message (job_report.cc).
absl::Status Failed(int64_t code) {
  if (code == STEPSCOPE_STORE_NONE) {
    return absl::FailedPreconditionError("there is no store");
  }
  return absl::UnavailableError("the store of the process group failed");
}

absl::Status Closed() {
  return absl::FailedPreconditionError("the profile has ended");
}

}  // namespace

absl::Status HookExchange::Put(const std::string& key,
                               const std::string& value) {
  // The lock is held during the call, so that Close() can wait for it.
  const std::scoped_lock lock(call_);
  if (closed_) return Closed();
  const int64_t code = hook_.put(hook_.user, key.c_str(), value.data(),
                                 static_cast<int64_t>(value.size()));
  return code < 0 ? Failed(code) : absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> HookExchange::Get(
    const std::string& key) {
  const std::scoped_lock lock(call_);
  if (closed_) return Closed();
  // Ask for the size first. Most calls find that there is nothing yet.
  const int64_t size = hook_.get(hook_.user, key.c_str(), nullptr, 0);
  if (size == STEPSCOPE_STORE_EMPTY) return std::nullopt;
  if (size < 0) return Failed(size);
  if (size > static_cast<int64_t>(kMostDigestBytes)) {
    return absl::InvalidArgumentError("the store holds something else under " +
                                      key);
  }
  std::string value(static_cast<size_t>(size), '\0');
  // If the length differs from the one just returned, the value was replaced in
  // between and may be cut.
  const int64_t copied = hook_.get(hook_.user, key.c_str(), value.data(), size);
  if (copied != size)
    return Failed(copied < 0 ? copied : STEPSCOPE_STORE_FAILED);
  return value;
}

void HookExchange::Close(std::chrono::milliseconds patience) {
  // Set before the wait, because a call that is waiting for the lock must see
  // it.
  closed_ = true;
  if (call_.try_lock_for(patience)) call_.unlock();
}

}  // namespace stepscope
