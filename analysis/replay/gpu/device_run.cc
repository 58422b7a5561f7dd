#include "replay/gpu/device_run.h"

#include <algorithm>

namespace stepscope {
namespace {

// Launches that fit into a stream's queue before the host must wait.
constexpr uint32_t kQueueDepth = 1024;

// Ends of the works of one stream, of which the last `depth` are in the queue.
class Queue {
 public:
  explicit Queue(uint32_t depth) : ends_(depth) {}
  // When there is room for one more.
  double room() const { return ends_[next_]; }
  void Push(double end) {
    ends_[next_] = end;
    next_ = next_ + 1 == ends_.size() ? 0 : next_ + 1;
    free_ = std::max(free_, end);
  }
  // Nothing starts before `until`.
  void Hold(double until) { free_ = std::max(free_, until); }
  // When all is done.
  double free() const { return free_; }

 private:
  std::vector<double> ends_;
  size_t next_ = 0;
  double free_ = 0;
};

class Simulation {
 public:
  Simulation(const DeviceProgram& program, const EditedProgram& edited)
      : program_(program),
        edited_(edited),
        ends_(program.works.size()),
        queues_(2 * program.streams,
                Queue(std::max(kQueueDepth, program.deepest_queue))),
        step_work_end_(program.windows.size()),
        overlapped_end_(program.windows.size()) {}

  DeviceRun Run();

 private:
  void Launch(const HostNode& node);
  double LateBy(const DeviceNode& work, double ready) const;
  void Return(const HostNode& node, uint32_t index);
  void BeginFirstStep();
  void EndStep(int32_t step, DeviceRun& run);

  const DeviceProgram& program_;
  const EditedProgram& edited_;
  std::vector<double> ends_;            // by work
  std::vector<Queue> queues_;           // by stream, then those beside them
  std::vector<double> step_work_end_;   // by step
  std::vector<double> overlapped_end_;  // by step: what its optimizer waits for
  double now_ = 0;                      // on the host
  double device_end_ = 0;
  double step_begin_ = 0;
};

void Simulation::Launch(const HostNode& node) {
  for (uint32_t i = node.first_work; i < node.first_work + node.work_count;
       ++i) {
    const DeviceNode& work = program_.works[i];
    const WorkPlace place = edited_.place[i];
    Queue& queue = queues_[place == WorkPlace::kOwnStream
                               ? work.stream
                               : program_.streams + work.stream];
    if (node.launches) now_ = std::max(now_, queue.room());
    double begin = now_ + work.offset_ns + edited_.latency * work.latency_ns;
    begin = std::max(begin, queue.free() + work.overlap_ns);
    if (edited_.waits_for_streams[i]) {
      for (uint32_t w = 0; w < work.wait_count; ++w) {
        const uint32_t other = program_.waits[work.first_wait + w];
        if (edited_.place[other] == WorkPlace::kOwnStream) {
          begin = std::max(begin, ends_[other]);
        }
      }
    }
    if (work.in_optimizer && work.step >= 0) {
      begin = std::max(begin, overlapped_end_[work.step]);
    }
    begin += LateBy(work, begin);
    const double end = begin + edited_.work_ns[i];
    ends_[i] = end;
    queue.Push(end);
    device_end_ = std::max(device_end_, end);
    if (work.step >= 0) {
      double& last = step_work_end_[work.step];
      last = std::max(last, end);
      if (place == WorkPlace::kOverlapped) {
        double& overlapped = overlapped_end_[work.step];
        overlapped = std::max(overlapped, end);
      }
    }
  }
}

// A work that another stream's held up starts when that one lets it.
double Simulation::LateBy(const DeviceNode& work, double ready) const {
  const double late = work.extra_ns * edited_.contention;
  if (work.held_by == kNoActivity) return late;
  return std::clamp(ends_[work.held_by] + work.held_ns - ready, 0.0, late);
}

void Simulation::Return(const HostNode& node, uint32_t index) {
  const double returned = now_ + edited_.own_ns[index];
  now_ = returned;
  if (!edited_.waits[index]) return;
  if (node.wait == NodeWait::kDevice) {
    now_ = std::max(returned, device_end_ + node.tail_ns);
  } else if (node.wait == NodeWait::kWork &&
             edited_.place[node.target] == WorkPlace::kOwnStream) {
    now_ = std::max(returned, ends_[node.target] + node.tail_ns);
  }
}

void Simulation::EndStep(int32_t step, DeviceRun& run) {
  const double end = std::max({now_, step_work_end_[step], step_begin_});
  run.step_ns[step] = end - step_begin_;
  step_begin_ = end;
}

// The device is still busy with steps before the first, which are like it:
// edits make them shorter, too.
void Simulation::BeginFirstStep() {
  step_begin_ = now_ + program_.first_lag_ns * edited_.contention;
  if (program_.first_lag_ns <= 0) return;
  for (Queue& queue : queues_) queue.Hold(step_begin_);
  device_end_ = std::max(device_end_, step_begin_);
}

DeviceRun Simulation::Run() {
  DeviceRun run;
  run.step_ns.assign(program_.windows.size(), 0);
  for (uint32_t i = 0; i < program_.hosts.size(); ++i) {
    if (i == program_.first_host) BeginFirstStep();
    const HostNode& node = program_.hosts[i];
    now_ += edited_.gap_ns[i];
    if (node.work_count > 0) Launch(node);
    Return(node, i);
    if (node.step_end >= 0) EndStep(node.step_end, run);
  }
  for (size_t i : program_.steady) run.mean_ns += run.step_ns[i];
  run.mean_ns /= program_.steady.size();
  return run;
}

}  // namespace

DeviceRun Simulate(const DeviceProgram& program, const EditedProgram& edited) {
  return Simulation(program, edited).Run();
}

}  // namespace stepscope
