#include "time_window.h"

#include <pthread.h>
#include <stepscope/profile.h>
#include <stepscope/signals_blocked.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "profile_options.h"

namespace stepscope {
namespace {

using std::chrono::milliseconds;

// The collectors run this long before the window begins, if there is time. It
// is long enough for the one-time costs of the hooks.
constexpr milliseconds kWarmup(100);

class TimeWindow {
 public:
  explicit TimeWindow(const WindowOptions& options)
      : options_(options), pid_(getpid()) {}

  // Runs on the injection's thread.
  void Run() {
    const milliseconds start(options_.start_ms);
    const milliseconds warmup = std::min(kWarmup, start);
    if (Sleep(start - warmup)) {
      Record(warmup);
    } else {
      std::fprintf(stderr,
                   "stepscope: the program ended before the %lld ms of "
                   "STEPSCOPE_START_MS, so nothing was recorded\n",
                   static_cast<long long>(options_.start_ms));
    }
    GiveUp();
  }

  // Nothing more will be recorded, so End() need not wait.
  void GiveUp() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

  // Called on the thread that ends the program. Ends the window and waits for
  // the files.
  void End() {
    if (getpid() != pid_) return;  // a forked child does not have our thread
    std::unique_lock lock(mutex_);
    ending_ = true;
    changed_.notify_all();
    // Waits without a limit, because Profile limits its wait for the files.
    changed_.wait(lock, [&] { return done_; });
  }

 private:
  // The window is one "step", because nothing marks steps in a span of time.
  // The analysis infers the steps from what the program does.
  void Record(milliseconds warmup) {
    // The main thread, whose tid is the pid, counts as the training thread,
    // because no other thread is marked.
    ProfileOptions options = InjectedProfileOptions(options_, getpid());
    // At most one warm-up step, and one step that is the window.
    options.schedule = {.wait = 0, .warmup = warmup.count() > 0, .active = 1};
    Profile profile(std::move(options), &InjectedParts);
    if (warmup.count() > 0) {
      if (!Sleep(warmup)) return;
      profile.Step();
    }
    // If the program ends first, the window contains what was recorded by then.
    Sleep(milliseconds(options_.duration_ms));
    profile.Step();
  }

  // Returns false if the program ends before the time is over.
  bool Sleep(milliseconds time) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, time, [&] { return ending_; });
  }

  const WindowOptions options_;
  const pid_t pid_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  bool done_ = false;
};

// Global, because atexit() takes no user pointer. Never destroyed, because the
// thread may outlive everything else.
TimeWindow* g_window = nullptr;

}  // namespace

void StartTimeWindow(const WindowOptions& options) {
  g_window = new TimeWindow(options);
  {
    const SignalsBlocked blocked;
    std::thread([] {
      pthread_setname_np(pthread_self(), "stepscope-drive");
      try {
        g_window->Run();
      } catch (...) {
        std::fputs("stepscope: out of memory; the program runs on unprofiled\n",
                   stderr);
        g_window->GiveUp();
      }
    }).detach();
  }
  // Needed because the thread is detached, so exit() would not wait for it.
  std::atexit([] { g_window->End(); });
}

}  // namespace stepscope
