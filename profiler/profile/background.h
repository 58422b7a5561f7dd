// Background: a low-priority thread that runs jobs in order, so that analysis
// and writing files neither block nor slow down the training thread.
//
// One thread calls it. The first job starts the background thread, with all
// signals blocked, so that the program's signal handlers never run on it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

namespace stepscope {

class Background {
 public:
  // A small number, because each waiting job holds a whole window in memory.
  static constexpr size_t kMaxWaiting = 2;

  Background();
  // Does not wait. If the thread still has jobs, it finishes them with data
  // that it owns.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Returns false if kMaxWaiting jobs are already waiting. The job must not
  // throw. If the thread cannot be started, Wait() runs the jobs.
  bool Add(std::function<void()> job);

  // True if Add() would take a job.
  bool HasRoom() const;

  // Waits until every job is done, at most `timeout`. True if all jobs are
  // done.
  bool Wait(std::chrono::milliseconds timeout);

 private:
  struct Shared;
  void StartThread();
  std::shared_ptr<Shared> shared_;  // with the thread, which may outlive this
};

}  // namespace stepscope
