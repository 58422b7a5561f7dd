#include "support/simulator/program_host.h"

#include <algorithm>
#include <cmath>

namespace stepscope::simulator {
namespace {

// Amdahl's law: the share `serial` of an op runs on one thread whatever their
// number, and it includes the time that threads wait for each other. The replay
// counts in doublings instead.
double PoolSpeed(int width, double serial) {
  return width / (1 + serial * (width - 1));
}

constexpr double kNever = 1e300;
constexpr double kSliceNs = 1'000'000;  // then the scheduler moves threads
constexpr double kSpinNs = 1'000'000;   // a pool spins for this long
constexpr int kAhead = 2;               // batches per worker

}  // namespace

Workers::Workers(const Machine& machine, Jitter& jitter)
    : machine_(machine),
      jitter_(jitter),
      all_(machine.has_loader ? machine.workers : 0) {
  Order();
}

void Workers::Order() {
  const int count = static_cast<int>(all_.size());
  while (count > 0 && ordered_ - taken_ < kAhead * count) {
    all_[ordered_ % count].orders.push_back(ordered_);
    made_.push_back(false);
    ++ordered_;
  }
  for (Worker& worker : all_) {
    if (!worker.busy()) Start(worker);
  }
}

void Workers::Start(Worker& worker) {
  if (worker.orders.empty()) return;
  worker.cpu =
      machine_.batch_cpu_ns * jitter_.Around(machine_.loader_jitter) + 1;
  worker.io = machine_.batch_io_ns * jitter_.Around(machine_.loader_jitter);
}

bool Workers::Take() {
  if (taken_ >= static_cast<int>(made_.size()) || !made_[taken_]) return false;
  ++taken_;
  Order();
  return true;
}

double Workers::Next(const std::vector<double>& speeds) const {
  double next = kNever;
  for (size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].io > 0) {
      next = std::min(next, all_[i].io);
    } else if (all_[i].cpu > 0 && speeds[i] > 0) {
      next = std::min(next, all_[i].cpu / speeds[i]);
    }
  }
  return next;
}

void Workers::Advance(double dt, const std::vector<double>& speeds) {
  for (size_t i = 0; i < all_.size(); ++i) {
    Worker& worker = all_[i];
    if (!worker.busy()) continue;
    if (worker.io > 0) {
      worker.io -= dt;
      if (worker.io <= 1e-3) worker.io = 0;
      continue;
    }
    worker.cpu -= dt * speeds[i];
    cpu_ns_ += dt * speeds[i];
    if (worker.cpu > 1e-3) continue;
    worker.cpu = 0;
    made_[worker.orders.front()] = true;
    worker.orders.erase(worker.orders.begin());
    Start(worker);
  }
}

Rank::Rank(const Machine& machine, RankCode& code,
           std::vector<Meeting>& meetings, Jitter& jitter)
    : machine_(machine),
      code_(code),
      device_(machine, code.tasks, meetings),
      workers_(machine, jitter),
      training_{code.training.code},
      autograd_{code.autograd.code},
      pool_speed_(machine.threads, 1),
      worker_speed_(workers_.count(), 1) {}

bool Rank::Settle(double now) {
  bool any = false;
  while (true) {
    const bool training = Go(training_, now);
    const bool autograd = Go(autograd_, now);
    const bool device = device_.Begin(now);
    if (!training && !autograd && !device) break;
    any = true;
  }
  ShareCores(now);
  return any;
}

bool Rank::Go(Runner& runner, double now) {
  bool any = false;
  while (runner.at < runner.code.size() &&
         Passes(runner, runner.code[runner.at], now)) {
    ++runner.at;
    any = true;
  }
  return any;
}

bool Rank::Passes(Runner& runner, const Instruction& is, double now) {
  switch (is.what) {
    case Do::kWork:
      if (runner.left < 0) runner.left = is.ns;
      if (runner.left > 0) return false;
      runner.left = -1;
      return true;
    case Do::kPool: {
      if (runner.parts.empty()) {
        const int width = machine_.threads;
        const double part = is.ns / PoolSpeed(width, machine_.serial);
        runner.parts.assign(width, part);
      }
      if (std::ranges::max(runner.parts) > 0) return false;
      runner.parts.clear();
      last_pool_ = now;
      return true;
    }
    case Do::kSleep:
      if (runner.until < 0) runner.until = now + is.ns;
      if (now < runner.until - 1e-3) return false;
      runner.until = -1;
      return true;
    case Do::kOpen:
      code_.rows[is.index].begin = now;
      if (code_.rows[is.index].is == RowIs::kStep) {
        usage_.push_back({workers_.cpu_ns(), delayed_ns_});
      }
      return true;
    case Do::kClose:
      code_.rows[is.index].end = now;
      return true;
    case Do::kPut:
      device_.Put(is.index, now);
      return true;
    case Do::kAwaitRoom:
      return device_.HasRoom();
    case Do::kAwaitWork:
      return code_.tasks[is.index].done;
    case Do::kAwaitStream: {
      const int last = device_.LastOf(is.index);
      return last < 0 || code_.tasks[last].done;
    }
    case Do::kAwaitDevice:
      return device_.IsIdle();
    case Do::kTake:
      return workers_.Take();
    case Do::kHandOver:
      turn_ = is.index;
      return true;
    case Do::kAwaitTurn:
      return turn_ >= is.index;
    case Do::kFinish:
      finished_turn_ = is.index;
      return true;
    case Do::kAwaitFinish:
      return finished_turn_ >= is.index;
  }
  return true;
}

bool Rank::Computes(const Runner& runner) const {
  if (runner.at >= runner.code.size()) return false;
  const Do what = runner.code[runner.at].what;
  return what == Do::kWork || what == Do::kPool;
}

bool Rank::PoolSpins(double now) const { return now - last_pool_ < kSpinNs; }

// Assigns threads to cores until something changes. A single thread and its
// workers take turns on the cores. Threads of a pool keep their cores, and
// other threads share with them.
void Rank::ShareCores(double now) {
  const auto pools = [&](const Runner& runner) {
    return runner.at < runner.code.size() &&
           runner.code[runner.at].what == Do::kPool;
  };
  const bool pool = pools(training_) || pools(autograd_) || PoolSpins(now);
  struct Running {
    double* speed;
    bool pinned;
    int home;
  };
  std::vector<Running> running;
  if (Computes(training_)) running.push_back({&foreground_[0], true, 0});
  if (Computes(autograd_)) running.push_back({&foreground_[1], true, 0});
  for (int i = 1; i < machine_.threads && pool; ++i) {
    running.push_back({&pool_speed_[i], true, i});
  }
  for (int w = 0; w < workers_.count(); ++w) {
    if (workers_.Computes(w)) running.push_back({&worker_speed_[w], false, 0});
  }
  double elsewhere = 1;  // speed of other programs, not used
  for (int i = 0; i < machine_.others; ++i) {
    running.push_back({&elsewhere, false, 0});
  }
  contended_ = static_cast<int>(running.size()) > machine_.cores;
  std::vector<int> load(machine_.cores, 0);
  std::vector<int> core(running.size());
  const auto turn = static_cast<size_t>(now / kSliceNs + 1e-9);
  for (size_t k = 0; k < running.size(); ++k) {
    if (machine_.threads == 1) {
      core[k] = static_cast<int>((k + turn) % running.size()) % machine_.cores;
    } else if (running[k].pinned) {
      core[k] = running[k].home % machine_.cores;
    } else {
      core[k] = static_cast<int>(std::ranges::min_element(load) - load.begin());
    }
    ++load[core[k]];
  }
  for (size_t k = 0; k < running.size(); ++k) {
    *running[k].speed = 1.0 / load[core[k]];
  }
}

double Rank::NextOf(const Runner& runner, size_t thread, double now) const {
  if (runner.at >= runner.code.size()) return kNever;
  switch (runner.code[runner.at].what) {
    case Do::kWork:
      return now + runner.left / foreground_[thread];
    case Do::kSleep:
      return runner.until;
    case Do::kPool: {
      double next = kNever;
      for (size_t i = 0; i < runner.parts.size(); ++i) {
        const double speed = i == 0 ? foreground_[thread] : pool_speed_[i];
        if (runner.parts[i] > 0) next = std::min(next, runner.parts[i] / speed);
      }
      return now + next;
    }
    default:
      return kNever;
  }
}

double Rank::Next(double now) {
  double next = std::min({NextOf(training_, 0, now), NextOf(autograd_, 1, now),
                          device_.Next(now)});
  next = std::min(next, now + workers_.Next(worker_speed_));
  if (contended_) {
    next = std::min(next, (std::floor(now / kSliceNs + 1e-9) + 1) * kSliceNs);
    if (PoolSpins(now)) next = std::min(next, last_pool_ + kSpinNs + 1);
  }
  return next;
}

void Rank::AdvanceOf(Runner& runner, size_t thread, double now, double dt) {
  if (runner.at >= runner.code.size()) return;
  const Do what = runner.code[runner.at].what;
  if (what == Do::kWork && runner.left > 0) {
    runner.left -= dt * foreground_[thread];
    if (runner.left < 1e-3) runner.left = 0;
    if (thread == 0) delayed_ns_ += dt * (1 - foreground_[thread]);
  } else if (what == Do::kPool) {
    for (size_t i = 0; i < runner.parts.size(); ++i) {
      if (runner.parts[i] <= 0) continue;
      runner.parts[i] -= dt * (i == 0 ? foreground_[thread] : pool_speed_[i]);
      if (runner.parts[i] < 1e-3) runner.parts[i] = 0;
    }
    if (thread == 0) delayed_ns_ += dt * (1 - foreground_[thread]);
  }
  (void)now;
}

void Rank::Advance(double now, double dt) {
  AdvanceOf(training_, 0, now, dt);
  AdvanceOf(autograd_, 1, now, dt);
  workers_.Advance(dt, worker_speed_);
  device_.Advance(now, dt);
}

}  // namespace stepscope::simulator
