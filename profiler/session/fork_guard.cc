#include "fork_guard.h"

#include <pthread.h>

#include <atomic>

namespace stepscope {
namespace {

// pthread_atfork handlers take no user pointer. Never destroyed: a thread may
// still lock it while the process exits.
std::mutex* const g_mutex = new std::mutex;
std::atomic<uint64_t> g_forks{0};

bool InstallHandlers() {
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

uint64_t ForkCount() noexcept {
  EnsureHandlers();
  return g_forks.load(std::memory_order_relaxed);
}

}  // namespace stepscope
