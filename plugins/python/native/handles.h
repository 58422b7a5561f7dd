// Numbers that stand for objects, for callers outside of C++. A number is never
// reused, so a number whose object is gone, or that was made up, is recognised.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace stepscope {

// Any thread may call any function. An object lives until its last user is
// done.
template <typename Object>
class Handles {
 public:
  // `first` must differ between kinds of objects, so that a handle of another
  // kind is not valid here.
  explicit Handles(uint64_t first) : next_(first) {}

  uint64_t Add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    objects_.emplace(next_, std::move(object));
    return next_++;
  }

  // Returns the object; null if `handle` is not valid.
  std::shared_ptr<Object> Get(uint64_t handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  // Removes the handle and returns its object; null if `handle` is not valid.
  std::shared_ptr<Object> Take(uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<Object>> objects_;
  uint64_t next_;
};

}  // namespace stepscope
