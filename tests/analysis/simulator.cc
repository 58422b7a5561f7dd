#include "analysis/simulator.h"

#include <stepscope/trace_builder.h>

#include <algorithm>
#include <cmath>

namespace stepscope {
namespace {

constexpr double kTickNs = 10'000;
constexpr int64_t kTicksPerSlice = 100;  // then the scheduler moves threads
constexpr double kSpinNs = 2'000'000;

// Threads on cores. Thread 0 trains, 1..T-1 are its pool, the rest load.
class Machine {
 public:
  explicit Machine(const Loop& loop)
      : loop_(loop),
        batch_ns_(loop.batch_ms * 1e6),
        remaining_(loop.workers, batch_ns_) {}

  int64_t now_ns() const { return static_cast<int64_t>(now_); }
  int64_t worker_cpu_ns() const { return static_cast<int64_t>(worker_cpu_); }

  // Runs `ns` of work on the training thread alone.
  void Serial(double ns) {
    while (ns > 0) {
      // The last tick is cut to the work that is left.
      const std::vector<double> speed = Speeds(true, PoolSpins());
      const double dt = std::min(kTickNs, ns / speed[0]);
      ns -= dt * speed[0];
      Pass(dt, speed);
    }
  }
  // An op of `ns` on one thread, split over the pool.
  void Parallel(double ns) {
    const int width = loop_.threads;
    // The first doubling loses a third as much: two threads share little.
    double efficiency = 1;
    if (width > 1) {
      efficiency = (2 + loop_.efficiency) / 3 *
                   std::pow(loop_.efficiency, std::log2(width) - 1);
    }
    const double chunk = ns / (width * efficiency);
    std::vector<double> left(width, chunk);
    while (std::ranges::max(left) > 0) {
      const std::vector<double> speed = Speeds(true, true);
      double dt = kTickNs;
      for (int i = 0; i < width; ++i) {
        if (left[i] > 0) dt = std::min(dt, left[i] / speed[i]);
      }
      dt = std::max(dt, 1.0);
      for (int i = 0; i < width; ++i) left[i] -= dt * speed[i];
      for (double& ns_left : left) {
        if (ns_left < 0.5) ns_left = 0;
      }
      Pass(dt, speed);
    }
    last_parallel_ = now_;
  }
  void NextBatch() {
    if (loop_.workers == 0) {
      Serial(batch_ns_);
      return;
    }
    while (ready_ == 0) {
      const std::vector<double> speed = Speeds(false, false);
      Pass(kTickNs, speed);
    }
    --ready_;
    Refill();
    Serial(30'000);
  }

 private:
  bool PoolSpins() const { return now_ - last_parallel_ < kSpinNs; }

  // The speed of every thread; 0 of those that have nothing to do.
  std::vector<double> Speeds(bool training, bool pool) const {
    const int threads = loop_.threads + loop_.workers;
    std::vector<int> running;
    for (int i = 0; i < threads; ++i) {
      const bool runs = i == 0              ? training
                        : i < loop_.threads ? pool
                                            : remaining_[i - loop_.threads] > 0;
      if (runs) running.push_back(i);
    }
    std::vector<double> speed(threads, 0);
    std::vector<int> load(loop_.cores, 0);
    std::vector<int> core(running.size());
    const size_t turn = ticks_ / kTicksPerSlice;
    for (size_t k = 0; k < running.size(); ++k) {
      if (loop_.threads == 1) {
        // One thread and its workers take turns on the cores.
        core[k] = static_cast<int>((k + turn) % running.size()) % loop_.cores;
      } else if (running[k] < loop_.threads) {
        // Pool threads stay where they are; whoever comes shares with them.
        core[k] = running[k] % loop_.cores;
      } else {
        core[k] =
            static_cast<int>(std::ranges::min_element(load) - load.begin());
      }
      ++load[core[k]];
    }
    for (size_t k = 0; k < running.size(); ++k) {
      speed[running[k]] = 1.0 / load[core[k]];
    }
    return speed;
  }
  void Pass(double dt, const std::vector<double>& speed) {
    now_ += dt;
    ++ticks_;
    for (int w = 0; w < loop_.workers; ++w) {
      if (remaining_[w] <= 0) continue;
      remaining_[w] -= dt * speed[loop_.threads + w];
      worker_cpu_ += dt * speed[loop_.threads + w];
      if (remaining_[w] <= 0) ++ready_;
    }
    Refill();
  }
  void Refill() {
    int busy = 0;
    for (double left : remaining_) busy += left > 0;
    for (double& left : remaining_) {
      if (left <= 0 && ready_ + busy < 2 * loop_.workers) {
        left = batch_ns_;
        ++busy;
      }
    }
  }

  const Loop& loop_;
  double batch_ns_;
  std::vector<double> remaining_;
  int ready_ = 0;
  double now_ = 1'000'000'000;
  double last_parallel_ = -1e18;
  double worker_cpu_ = 0;
  int64_t ticks_ = 0;
};

}  // namespace

std::vector<LoopOp> Ops(int count, double ms) {
  std::vector<LoopOp> ops;
  for (int i = 0; i < count; ++i) {
    ops.push_back({.ms = ms});
    ops.push_back({.name = "aten::nonzero", .ms = 0.02, .parallel = false});
  }
  return ops;
}

LoopRun Simulate(const Loop& loop) {
  TraceBuilder builder;
  RunInfo& run = builder.run();
  run.name = "loop";
  run.usable_cores = loop.cores;
  const RowId thread = builder.ThreadRow(1, 1);
  run.training_thread = thread;
  for (Kind kind : {Kind::kStep, Kind::kRange, Kind::kOp, Kind::kSettings,
                    Kind::kHostUsage, Kind::kLoader}) {
    builder.Watch(kind);
  }
  if (loop.batch_ms > 0) {
    builder.Add(Loader{
        .name = builder.Intern("train"),
        .kind = builder.Intern(loop.workers > 0 ? "threads" : "in-process"),
        .workers = loop.workers});
  }
  const NameId loader_name = builder.Intern(
      loop.workers > 0
          ? "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
          : "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");

  Machine machine(loop);
  int64_t first_ns = 0;
  for (int i = 0; i < loop.warmup + loop.steps; ++i) {
    const bool recorded = i >= loop.warmup;
    const int64_t begin = machine.now_ns();
    const int64_t worker_cpu = machine.worker_cpu_ns();
    if (i == loop.warmup) first_ns = begin;
    if (loop.batch_ms > 0) {
      machine.NextBatch();
      if (recorded) {
        builder.Add(Range{.begin_ns = begin,
                          .end_ns = machine.now_ns(),
                          .name = loader_name,
                          .thread = thread,
                          .kind = RangeKind::kLoader});
      }
    }
    for (const LoopOp& op : loop.ops) {
      machine.Serial(op.gap_us * 1e3);
      const int64_t outer = machine.now_ns();
      machine.Serial(op.dispatch_us * 1e3);
      const int64_t inner = machine.now_ns();
      op.parallel ? machine.Parallel(op.ms * 1e6) : machine.Serial(op.ms * 1e6);
      if (!recorded) continue;
      if (!op.zero_grad) {
        builder.Add(Op{.begin_ns = outer,
                       .end_ns = machine.now_ns(),
                       .name = builder.Intern("aten::wrapper"),
                       .thread = thread});
      }
      builder.Add(Op{.begin_ns = inner,
                     .end_ns = machine.now_ns(),
                     .name = builder.Intern(op.name),
                     .thread = thread});
    }
    if (!recorded) continue;
    builder.Add(Step{.begin_ns = begin,
                     .end_ns = machine.now_ns(),
                     .number = i,
                     .thread = thread});
    builder.Add(Settings{
        .step = i, .time_ns = begin, .intra_op_threads = loop.threads});
    builder.Add(HostUsage{.step = i,
                          .begin_ns = begin,
                          .end_ns = machine.now_ns(),
                          .loader_cpu_ns = machine.worker_cpu_ns() - worker_cpu,
                          .loader_workers = loop.workers});
  }
  LoopRun result;
  result.mean_step_ms =
      static_cast<double>(machine.now_ns() - first_ns) * 1e-6 / loop.steps;
  result.trace = builder.Build();
  return result;
}

}  // namespace stepscope
