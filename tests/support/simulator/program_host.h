// The cores of one rank and the threads on them: the training thread, the
// autograd thread, the intra-op pool and the loader's workers.
#pragma once

#include <vector>

#include "support/simulator/program_device.h"

namespace stepscope::simulator {

// Loader workers: each makes every W-th batch; two ahead per worker; batches
// are handed over in order.
class Workers {
 public:
  Workers(const Machine& machine, Jitter& jitter);
  bool Take();
  // Needs a core now.
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
  std::vector<bool> made_;  // by batch
  int ordered_ = 0, taken_ = 0;
  double cpu_ns_ = 0;
};

// A rank: its threads run its code and drive its device.
class Rank {
 public:
  Rank(const Machine& machine, RankCode& code, std::vector<Meeting>& meetings,
       Jitter& jitter);

  // Does all that takes no time; true if anything was done.
  bool Settle(double now);
  double Next(double now);
  void Advance(double now, double dt);
  bool finished() const {
    return training_.at >= code_.training.code.size() && device_.IsIdle();
  }
  // What stands still, for a message about a program that cannot go on.
  bool stuck() const { return training_.at < code_.training.code.size(); }

  // Workers' CPU time and the training thread's time without a core, when each
  // step began; the last entry is the end.
  struct Usage {
    double workers_cpu_ns = 0, delayed_ns = 0;
  };
  const std::vector<Usage>& usage() const { return usage_; }

 private:
  struct Runner {
    const std::vector<Instruction>& code;
    size_t at = 0;
    double left = -1;                // of kWork; -1: not begun
    double until = -1;               // of kSleep
    std::vector<double> parts = {};  // of kPool
  };
  bool Go(Runner& runner, double now);
  // False if the instruction is not through yet.
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
  // Shares of a core: training, autograd; the pool's further threads; workers.
  double foreground_[2] = {1, 1};
  std::vector<double> pool_speed_, worker_speed_;
  bool contended_ = false;
};

}  // namespace stepscope::simulator
