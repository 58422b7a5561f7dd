#include "cupti_fork.h"

#include <pthread.h>

#include <atomic>

namespace stepscope {
namespace {

// Global, because a handler of pthread_atfork() gets no user pointer.
std::atomic<bool> g_in_child{false};

}  // namespace

void WatchForks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    g_in_child.store(true, std::memory_order_relaxed);
  });
  (void)registered;
}

bool InForkedChild() noexcept {
  return g_in_child.load(std::memory_order_relaxed);
}

}  // namespace stepscope
