// Background: one thread that works off jobs in order, at low priority, so that
// analysis and files do not hold or slow the training thread.
//
// One thread drives it. The thread is started by the first job, with all
// signals blocked: the program's handlers run where they did before.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

namespace stepscope {

class Background {
 public:
  // Jobs that wait hold a whole window in memory each.
  static constexpr size_t kMaxWaiting = 2;

  Background();
  // Waits for the running job only if it is about to end; a thread that is
  // still busy is left to itself and keeps what it needs alive.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // False if kMaxWaiting jobs wait already. The job must not throw. If no
  // thread can be started, jobs run inside Wait().
  bool Add(std::function<void()> job);

  // Waits until every job is done, at most `timeout`; true if they are.
  bool Wait(std::chrono::milliseconds timeout);

 private:
  struct Shared;
  void StartThread();
  std::shared_ptr<Shared> shared_;  // with the thread, which may outlive us
};

}  // namespace stepscope
