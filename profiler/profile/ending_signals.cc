#include "ending_signals.h"

#include <pthread.h>
#include <semaphore.h>
#include <stepscope/clock.h>
#include <stepscope/signals_blocked.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <system_error>
#include <thread>

namespace stepscope {
namespace {

using std::chrono::milliseconds;

constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};

// Everything that the handler touches. Never destroyed, because a signal may
// come at any time. Lock-free, because it may come on any thread.
struct Shared {
  sem_t woken;
  sem_t gone;  // posted when the waiting thread ends
  std::atomic<bool> is_there{false};
  std::atomic<pid_t> pid{0};
  std::atomic<int> caught{0};
  std::atomic<int64_t> caught_ns{0};
  std::atomic<int64_t> grace_ns{0};
};
static_assert(std::atomic<int64_t>::is_always_lock_free);
Shared g_shared;

void OnSignal(int signal);

bool IsOurs(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == OnSignal;
}

// Restores the default action if our handler is still installed.
void GiveBack(int signal) noexcept {
  struct sigaction now = {};
  if (sigaction(signal, nullptr, &now) == 0 && IsOurs(now))
    std::signal(signal, SIG_DFL);
}

// Calls only functions that signal-safety(7) lists. The first signal starts the
// grace period. A second signal, or one in a forked child (whose profile
// belongs to the parent), takes its default action when the handler has
// returned.
void OnSignal(int signal) {
  const int error = errno;
  int none = 0;
  if (g_shared.caught.load() == 0) g_shared.caught_ns.store(MonotonicNs());
  if (g_shared.is_there.load() && getpid() == g_shared.pid.load() &&
      g_shared.caught.compare_exchange_strong(none, signal)) {
    sem_post(&g_shared.woken);
  } else {
    std::signal(signal, SIG_DFL);
    kill(getpid(), signal);
  }
  errno = error;
}

// Waits for a signal, then for the end of the grace period, and then ends the
// program. The destructor of EndingSignals wakes it and ends it earlier.
void Watch() {
  pthread_setname_np(pthread_self(), "stepscope-end");
  while (sem_wait(&g_shared.woken) != 0) {
  }
  if (g_shared.caught.load() == 0) {
    sem_post(&g_shared.gone);
    return;
  }
  const int64_t until_ns = g_shared.caught_ns.load() + g_shared.grace_ns.load();
  const timespec until = {.tv_sec = until_ns / 1'000'000'000,
                          .tv_nsec = until_ns % 1'000'000'000};
  int result = 0;
  do {
    result = sem_clockwait(&g_shared.woken, CLOCK_MONOTONIC, &until);
  } while (result != 0 && errno == EINTR);
  if (result != 0) EndingSignals::EndProgram();
  sem_post(&g_shared.gone);
}

bool StartWatching() {
  const SignalsBlocked blocked;
  try {
    std::thread(Watch).detach();
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<EndingSignals> EndingSignals::Make(milliseconds grace) {
  if (g_shared.is_there.load() && g_shared.pid.load() == getpid())
    return nullptr;
  std::unique_ptr<EndingSignals> made(new EndingSignals);
  sem_init(&g_shared.woken, 0, 0);
  sem_init(&g_shared.gone, 0, 0);
  g_shared.caught = 0;
  g_shared.grace_ns = std::chrono::nanoseconds(grace).count();
  g_shared.pid = getpid();
  if (!StartWatching()) return nullptr;
  g_shared.is_there = true;
  bool has_any = false;
  for (int signal : kSignals) {
    struct sigaction now = {};
    if (sigaction(signal, nullptr, &now) != 0 ||
        (now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) {
      continue;  // the program has set another action
    }
    struct sigaction ours = {};
    ours.sa_handler = OnSignal;
    // With SA_RESTART, interrupted system calls of the program go on.
    ours.sa_flags = SA_RESTART;
    sigemptyset(&ours.sa_mask);
    has_any |= sigaction(signal, &ours, nullptr) == 0;
  }
  // If no signal was taken, the destructor of `made` ends the thread.
  return has_any ? std::move(made) : nullptr;
}

EndingSignals::~EndingSignals() {
  if (!g_shared.is_there.load() || g_shared.pid.load() != getpid()) return;
  for (int signal : kSignals) GiveBack(signal);
  sem_post(&g_shared.woken);
  while (sem_wait(&g_shared.gone) != 0) {
  }
  g_shared.is_there = false;
  // A signal may have come just before the handlers were removed.
  if (g_shared.caught.load() != 0) EndProgram();
}

int EndingSignals::Caught() noexcept { return g_shared.caught.load(); }

milliseconds EndingSignals::Left() noexcept {
  const int64_t left_ns =
      g_shared.caught_ns.load() + g_shared.grace_ns.load() - MonotonicNs();
  return milliseconds(left_ns > 0 ? left_ns / 1'000'000 : 0);
}

const char* EndingSignals::NameOf(int signal) noexcept {
  return signal == SIGINT ? "SIGINT" : "SIGTERM";
}

void EndingSignals::EndProgram() noexcept {
  const int signal = g_shared.caught.load();
  GiveBack(signal);
  kill(getpid(), signal);
}

}  // namespace stepscope
