// The cores of one rank and its threads: the training thread, the autograd
// thread, the intra-op pool and the loader workers.
#pragma once

#include <vector>

#include "support/simulator/program_device.h"

namespace stepscope::simulator {

// Loader workers: each makes every W-th batch and is at most two batches ahead.
// Batches are delivered in order.
class Workers {
 public:
  Workers(const Machine& machine, Jitter& jitter);
  bool Take();
  // True if the worker needs a core now.
  bool Computes(int worker) const { return all_[worker].cpu > 0; }
  int count() const { return static_cast<int>(all_.size()); }
  double cpu_ns() const { return cpu_ns_; }
  double Next(const std::vector<double>& speeds) const;
  void Advance(double dt, const std::vector<double>& speeds);

 private:
  struct Worker {
    double io = 0, cpu = 0;
    std::vector<int> orders = {};  // batches to make, in order
    bool busy() const { return io > 0 || cpu > 0; }
  };
  void Order();
  void Start(Worker& worker);

  const Machine& machine_;
  Jitter& jitter_;
  std::vector<Worker> all_;
  std::vector<bool> made_;  // per batch
  int ordered_ = 0, taken_ = 0;
  double cpu_ns_ = 0;
};

// A rank: its threads run its code and control its device.
class Rank {
 public:
  Rank(const Machine& machine, RankCode& code, std::vector<Meeting>& meetings,
       Jitter& jitter);

  // Does everything that takes no time. Returns true if anything was done.
  bool Settle(double now);
  double Next(double now);
  void Advance(double now, double dt);
  bool finished() const {
    return training_.at >= code_.training.code.size() && device_.IsIdle();
  }
  // True if the training thread has not finished; used in the message about a
  // program that cannot continue.
  bool stuck() const { return training_.at < code_.training.code.size(); }

  // Workers' CPU time and the training thread's time without a core, at the
  // start of each step. The last entry is for the end.
  struct Usage {
    double workers_cpu_ns = 0, delayed_ns = 0;
  };
  const std::vector<Usage>& usage() const { return usage_; }

 private:
  struct Runner {
    const std::vector<Instruction>& code;
    size_t at = 0;
    double left = -1;                // of kWork; -1: not started
    double until = -1;               // of kSleep
    std::vector<double> parts = {};  // of kPool
  };
  bool Go(Runner& runner, double now);
  // Returns false if the instruction is not finished yet.
  bool Passes(Runner& runner, const Instruction& instruction, double now);
  bool Computes(const Runner& runner) const;
  void ShareCores(double now);
  double NextOf(const Runner& runner, size_t thread, double now) const;
  void AdvanceOf(Runner& runner, size_t thread, double now, double dt);
  bool PoolSpins(double now) const;

  const Machine& machine_;
  RankCode& code_;
  Device device_;
  Workers workers_;
  Runner training_, autograd_;
  std::vector<Usage> usage_;
  int turn_ = 0, finished_turn_ = 0;
  double last_pool_ = -1e18, delayed_ns_ = 0;
  // Shares of a core: training and autograd thread; the pool's other threads;
  // workers.
  double foreground_[2] = {1, 1};
  std::vector<double> pool_speed_, worker_speed_;
  bool contended_ = false;
};

}  // namespace stepscope::simulator
