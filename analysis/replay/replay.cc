#include "replay/replay.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "replay/cpu/cuts.h"

namespace stepscope {
namespace {

// Typical costs of LibTorch on a server's cores, in ns. They are estimates. The
// samples check predictions made with them against measured steps.
constexpr double kHandOverNs = 50'000;  // taking a finished batch from a worker
constexpr double kForkNs = 5'000;       // waking the pool for one op
// Threads of the pool spin for this long before they sleep.
constexpr double kPoolSpinsNs = 2'000'000;
// ATen does not split shorter ops (fewer than 32768 elements).
constexpr double kWorthSplittingNs = 20'000;
// Upper limit of the framework code between two kernels without anomaly mode.
constexpr double kUsualDispatchNs = 20'000;
// Largest error of the unchanged replay, as a share of the measured step.
constexpr double kErrorLimit = 0.03;
constexpr double kForever = 1e300;
// Calibration stops at an error of 0.1 % or after three rounds. At most 30 % of
// the CPU time counted for a batch may belong to other batches: the time is
// counted per step, and some batches are half made when a step ends.
constexpr double kClose = 0.001;
constexpr double kLeastOfBatch = 0.7;
constexpr int kRounds = 3;

// Returns the time of an op on one thread / on `threads`. Each doubling of the
// threads makes it 2 * `efficiency` times as fast. The first doubling loses
// only a third as much, because two threads hardly compete for caches and
// memory.
double Speedup(int threads, double efficiency) {
  if (threads <= 1) return 1;
  const double first = 1 - (1 - efficiency) / 3;
  return threads * first * std::pow(efficiency, std::log2(threads) - 1);
}

bool IsDropped(WorkTag tag, const Edit& edit) {
  return (edit.drop_zero_grad && tag == WorkTag::kZeroGrad) ||
         (edit.drop_unused_graph && tag == WorkTag::kUnusedGraph) ||
         (edit.drop_anomaly && tag == WorkTag::kAnomaly) ||
         ((edit.drop_anomaly || edit.drop_unused_graph) &&
          tag == WorkTag::kUnusedStack);
}

// The speeds of the training thread and of each worker while both run; 1 is
// full speed. A parallel op runs at the speed of its slowest thread, so with
// more threads than cores it slows down by a whole number (2, 3, ...).
struct Pace {
  double training = 1;
  double worker = 1;
};
Pace PaceOn(int cores, int training_threads, double busy_workers) {
  const double running = training_threads + busy_workers;
  if (cores <= 0 || running <= cores) return {};
  if (training_threads > 1) {
    // 1e-9 keeps rounding errors from raising the number of threads per core.
    const double share = 1 / std::ceil(running / cores - 1e-9);
    return {share, share};
  }
  return {cores / running, cores / running};
}

// The loader workers and their queue of finished batches. While a worker makes
// a batch, CPU time and waits for storage are evenly mixed.
class Workers {
 public:
  // `ahead`: the maximum number of finished and started batches per worker.
  Workers(int count, int ahead, double cpu_ns, double io_ns)
      : remaining_(count), batch_ns_(cpu_ns + io_ns), limit_(ahead * count) {
    if (batch_ns_ > 0) cpu_frac_ = cpu_ns / batch_ns_;
    Refill();
  }

  int busy() const {
    return static_cast<int>(
        std::ranges::count_if(remaining_, [](double ns) { return ns > 0; }));
  }
  // The number of cores that they use.
  double load() const { return busy() * cpu_frac_; }
  // Time in ns until the next batch is finished at speed `pace`.
  double Next(double pace) const {
    double least = kForever;
    for (double ns : remaining_) {
      if (ns > 0) least = std::min(least, ns / pace);
    }
    return least;
  }
  void Advance(double ns, double pace) {
    for (double& left : remaining_) {
      if (left <= 0) continue;
      left -= ns * pace;
      if (left < 1e-6) {
        left = 0;
        ++ready_;
      }
    }
    Refill();
  }
  // Takes a finished batch; false if there is none.
  bool Take() {
    if (ready_ == 0) return false;
    --ready_;
    Refill();
    return true;
  }

 private:
  // Idle workers start a batch unless the queue is full.
  void Refill() {
    for (double& left : remaining_) {
      if (left <= 0 && ready_ + busy() < limit_) left = batch_ns_;
    }
  }

  std::vector<double> remaining_;  // per worker; 0: idle
  double batch_ns_;
  int limit_;
  double cpu_frac_ = 1;
  int ready_ = 0;
};

}  // namespace

Replay::Replay(CpuProgram program) : program_(std::move(program)) {
  if (program_.steps.empty() || program_.measured_ns <= 0) {
    check_.why_not = "no steps were found";
    return;
  }
  Calibrate();
  unchanged_ns_ = Simulate({});
  check_.no_edit_error =
      (unchanged_ns_ - program_.measured_ns) / program_.measured_ns;
  check_.valid = std::abs(check_.no_edit_error) <= kErrorLimit;
  if (!check_.valid) {
    check_.why_not =
        "replaying the recorded steps unchanged missed their measured time "
        "by " +
        std::to_string(std::lround(100 * std::abs(check_.no_edit_error))) +
        " %";
  }
}

Replay::Replay(DeviceProgram program) : device_(std::move(program)) {
  check_ = device_->check();
}

void Replay::Distrust(std::string why) {
  check_.valid = false;
  check_.why_not = std::move(why);
}

double Replay::StepNs(const Edit& edit,
                      const ReplayParameters& parameters) const {
  for (const Predicted& one : predicted_) {
    if (one.parameters == parameters && one.edit == edit) return one.step_ns;
  }
  const double step_ns = Predict(edit, parameters);
  predicted_.push_back({edit, parameters, step_ns});
  return step_ns;
}

double Replay::Predict(const Edit& edit,
                       const ReplayParameters& parameters) const {
  if (device_) return device_->StepNs(edit, parameters);
  const double ns = Simulate(edit, parameters);
  const bool recorded_workers = edit.workers < 0 && program_.workers != 0;
  if (!recorded_workers || program_.batch_cpu_ns > 0) return ns;
  // The recorded workers are not simulated here. They kept up with the recorded
  // steps, so they never make the step longer than the unchanged one.
  return std::max(ns, std::min(program_.rate.period_ns, unchanged_ns_));
}

// Finds two figures that a recording with workers does not show. The first is
// the factor by which the workers slowed the recorded work: with it, the
// unchanged replay computes for as long as the recording did. The second is the
// time to make a batch. If the replayed waits for batches are too short,
// workers are taken to also wait for storage. If they are too long, some of the
// counted CPU time is taken to belong to other batches.
void Replay::Calibrate() {
  const auto bisect = [&](double& unknown, double low, double high,
                          const auto& is_low) {
    for (int i = 0; i < 24; ++i) {
      unknown = (low + high) / 2;
      (is_low() ? low : high) = unknown;
    }
  };
  const double measured = program_.measured_ns;
  const bool queue = program_.workers > 0 && program_.batch_cpu_ns > 0;
  double loading = 0;
  for (const auto& step : program_.steps) {
    for (const Work& work : step) {
      if (work.kind == WorkKind::kLoader) loading += work.ns;
    }
  }
  const double working =
      queue ? measured - loading / static_cast<double>(program_.steps.size())
            : measured;
  const auto works = [&] {
    const Times times = Run({});
    return queue ? times.step_ns - times.loading_ns : times.step_ns;
  };
  const double counted = program_.batch_cpu_ns;
  // The two figures depend on each other: the time per batch determines how
  // long workers run at the same time as the ops, and so how much they slow the
  // ops.
  for (int round = 0; round < kRounds; ++round) {
    recorded_slowdown_ = 1;
    if (works() > working * (1 + kClose)) {
      bisect(recorded_slowdown_, 1, 4, [&] { return works() > working; });
    }
    if (!queue || std::abs(Simulate({}) / measured - 1) < kClose) return;
    program_.batch_cpu_ns = counted;
    batch_io_ns_ = 0;
    const double unchanged = Simulate({});
    const auto short_of = [&] { return Simulate({}) < measured; };
    if (unchanged < measured) {
      bisect(batch_io_ns_, 0, 2 * program_.workers * measured, short_of);
    } else {
      bisect(program_.batch_cpu_ns, kLeastOfBatch * counted, counted, short_of);
    }
  }
}

double Replay::Simulate(const Edit& edit,
                        const ReplayParameters& parameters) const {
  return Run(edit, parameters).step_ns;
}

Replay::Times Replay::Run(const Edit& edit,
                          const ReplayParameters& parameters) const {
  // By default torch uses all cores.
  const int threads_then =
      program_.threads > 0 ? program_.threads : std::max(program_.cores, 1);
  const int threads = edit.threads > 0 ? edit.threads : threads_then;
  const int workers_then = std::max(program_.workers, 0);
  const int worker_count = edit.workers >= 0 ? edit.workers : workers_then;
  // The queue is simulated only if there are workers and the CPU time of a
  // batch is known; otherwise waits for batches stay as recorded.
  const bool queue = worker_count > 0 && program_.batch_cpu_ns > 0;
  Workers workers(queue ? worker_count : 0, program_.batches_ahead,
                  program_.batch_cpu_ns * parameters.worker_cost * edit.batch,
                  batch_io_ns_ * edit.batch);
  const double faster = Speedup(threads, parameters.thread_efficiency) /
                        Speedup(threads_then, parameters.thread_efficiency);

  double now = 0, loading = 0;
  // Advances time by `ns` of work of the training thread on `width` threads,
  // while the workers run, too.
  const auto run = [&](double ns, int width) {
    while (ns > 1e-6) {
      const Pace pace = PaceOn(program_.cores, width, workers.load());
      const double step =
          std::min(ns / pace.training, workers.Next(pace.worker));
      now += step;
      ns -= step * pace.training;
      workers.Advance(step, pace.worker);
    }
  };
  // Gets a batch: waits for a worker, or makes it as recorded.
  const auto load = [&](double recorded_ns) {
    const double before = now;
    if (!queue) {
      run(recorded_ns, 1);
      loading += now - before;
      return;
    }
    while (!workers.Take()) {
      const Pace pace = PaceOn(program_.cores, 0, workers.load());
      const double step = workers.Next(pace.worker);
      now += step;
      workers.Advance(step, pace.worker);
    }
    run(std::min(recorded_ns, kHandOverNs), 1);
    loading += now - before;
  };
  double dispatch_ns = edit.dispatch_ns >= 0 ? edit.dispatch_ns : kForever;
  if (edit.drop_anomaly) dispatch_ns = std::min(dispatch_ns, kUsualDispatchNs);
  const auto do_work = [&](const Work& work) {
    if (IsDropped(work.tag, edit)) return;
    double ns = work.ns / recorded_slowdown_;
    if (edit.batch != 1) {
      ns += (edit.batch - 1) * work.grows_ns / recorded_slowdown_;
    }
    if (edit.fused_update >= 0) {
      if (work.update == Update::kAround) return;
      if (work.update == Update::kComputing) ns *= edit.fused_update;
    }
    switch (work.kind) {
      case WorkKind::kLoader:
        load(work.ns * edit.batch);
        return;
      case WorkKind::kParallel:
        if (threads != threads_then &&
            (ns * Speedup(threads_then, parameters.thread_efficiency) >
             kWorthSplittingNs * work.ops)) {
          ns /= faster;
          if (threads_then == 1) ns += kForkNs * work.ops;
        }
        run(ns, threads);
        return;
      case WorkKind::kSerial:
        if (work.tag == WorkTag::kDispatch) ns = std::min(ns, dispatch_ns);
        // During short serial work the pool's threads still spin on their
        // cores.
        run(ns, ns < kPoolSpinsNs ? threads : 1);
        return;
    }
  };
  const std::vector<std::vector<Work>> cut = WithCuts(program_, edit.cuts);
  const std::vector<std::vector<Work>>& steps =
      edit.cuts.empty() ? program_.steps : cut;
  const auto run_steps = [&] {
    for (const auto& step : steps) {
      for (const Work& work : step) do_work(work);
    }
  };

  // Replays until the queue has reached a steady state, then measures at least
  // five steps.
  const size_t count = program_.steps.size();
  const size_t settle =
      queue ? 1 + size_t{2} * program_.batches_ahead * worker_count / count : 0;
  for (size_t i = 0; i < settle; ++i) run_steps();
  const double begin = now;
  loading = 0;
  const size_t rounds = queue ? 1 + 4 / count : 1;
  for (size_t i = 0; i < rounds; ++i) run_steps();
  const double samples = static_cast<double>(rounds * count) * edit.batch;
  return {(now - begin) / samples, loading / samples};
}

}  // namespace stepscope
