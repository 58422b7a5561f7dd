#include "fork_guard.h"

#include <pthread.h>

#include <atomic>

namespace stepscope {
namespace {

// Global, because pthread_atfork handlers take no user pointer. Never
// destroyed, because a thread may still lock it while the process exits.
std::mutex* const g_mutex = new std::mutex;
std::atomic<uint64_t> g_forks{0};

bool InstallHandlers() {
  // Locked before the fork and released on both sides. Otherwise a child could
  // inherit a mutex locked by a thread that does not exist in the child and
  // never releases it.
  pthread_atfork([] { g_mutex->lock(); }, [] { g_mutex->unlock(); },
                 [] {
                   g_forks.fetch_add(1, std::memory_order_relaxed);
                   g_mutex->unlock();
                 });
  return true;
}

void EnsureHandlers() {
  [[maybe_unused]] static const bool installed = InstallHandlers();
}

}  // namespace

std::mutex& SharedMutex() {
  EnsureHandlers();
  return *g_mutex;
}

// A relaxed load is enough: the count changes only inside fork(), when the
// child has a single thread.
uint64_t ForkCount() noexcept {
  EnsureHandlers();
  return g_forks.load(std::memory_order_relaxed);
}

}  // namespace stepscope
