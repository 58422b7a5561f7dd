#include "background.h"

#include <pthread.h>
#include <stepscope/signals_blocked.h>
#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace stepscope {

// Owned jointly by the Profile and its thread, because the thread may outlive
// the Profile while it finishes its jobs.
struct Background::Shared {
  std::mutex mutex;
  std::condition_variable work;
  std::condition_variable idle;
  std::deque<std::function<void()>> jobs;
  bool busy = false;
  bool stop = false;
  bool has_thread = false;

  bool done() const { return jobs.empty() && !busy; }

  // Runs the first job, with the mutex released meanwhile.
  void RunOne(std::unique_lock<std::mutex>& lock) {
    std::function<void()> job = std::move(jobs.front());
    jobs.pop_front();
    busy = true;
    lock.unlock();
    job();
    job = nullptr;  // frees the window before Wait() returns
    lock.lock();
    busy = false;
    idle.notify_all();
  }
};

namespace {

// On Linux each thread has its own priority. If the training thread shares a
// core with this thread, the training thread goes first.
constexpr int kNice = 10;

}  // namespace

Background::Background() : shared_(std::make_shared<Shared>()) {}

Background::~Background() {
  const std::lock_guard lock(shared_->mutex);
  shared_->stop = true;
  shared_->work.notify_all();
}

void Background::StartThread() {
  const SignalsBlocked blocked;
  try {
    std::thread([shared = shared_] {
      pthread_setname_np(pthread_self(), "stepscope");
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
      std::unique_lock lock(shared->mutex);
      for (;;) {
        shared->work.wait(
            lock, [&] { return shared->stop || !shared->jobs.empty(); });
        if (shared->jobs.empty()) return;
        shared->RunOne(lock);
      }
    }).detach();  // joining could block the training thread for minutes
    shared_->has_thread = true;
  } catch (const std::system_error&) {
    // No thread could be started (a limit of the system), so Wait() runs the
    // jobs.
  }
}

bool Background::Add(std::function<void()> job) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->jobs.size() >= kMaxWaiting) return false;
  shared_->jobs.push_back(std::move(job));
  if (!shared_->has_thread) StartThread();
  shared_->work.notify_one();
  return true;
}

bool Background::HasRoom() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->jobs.size() < kMaxWaiting;
}

// The training thread calls this only at the end of a run. It waits at most
// `timeout`; jobs that take longer go on in the background.
bool Background::Wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(shared_->mutex);
  if (!shared_->has_thread) {
    while (!shared_->jobs.empty()) shared_->RunOne(lock);
  }
  return shared_->idle.wait_for(lock, timeout, [&] { return shared_->done(); });
}

}  // namespace stepscope
