#include "replay/gpu/device_run.h"

#include <algorithm>

#include "ops/activity.h"

namespace stepscope {
namespace {

// The CUDA driver queues about 1024 launches per stream before a launch call
// waits for room.
constexpr uint32_t kQueueDepth = 1024;

// The effect of a change shows only across steps: a host that no longer waits
// starts the next step earlier. So a single steady step is repeated this often
// and averaged. The first run of the step, with its recorded start, is only a
// lead-in.
constexpr int kRepeats = 3;

// The queue of one stream. It holds `depth` launches; a launch leaves it when
// its activity, or the last one of its graph, ends.
class Queue {
 public:
  explicit Queue(uint32_t depth) : ends_(depth) {}
  // The time from which the queue has room for one more launch.
  double room() const { return ends_[next_]; }
  // True if the last launch is of the graph that `activity` belongs to.
  bool HoldsGraph(const DeviceNode& activity) const {
    return last_pushed_ != nullptr && SameGraph(*last_pushed_, activity);
  }
  void Push(double end, const DeviceNode& activity) {
    last_pushed_ = &activity;
    last_ = next_;
    next_ = next_ + 1 == ends_.size() ? 0 : next_ + 1;
    ends_[last_] = end;
    free_ = std::max(free_, end);
  }
  // Adds an activity to the last launch.
  void Extend(double end) {
    ends_[last_] = std::max(ends_[last_], end);
    free_ = std::max(free_, end);
  }
  // The next launch does not belong to the last graph.
  void CloseGraph() { last_pushed_ = nullptr; }
  // Nothing starts before `until`.
  void Hold(double until) { free_ = std::max(free_, until); }
  // The time at which everything in the queue is done.
  double free() const { return free_; }

 private:
  std::vector<double> ends_;
  size_t next_ = 0;
  size_t last_ = 0;
  const DeviceNode* last_pushed_ = nullptr;
  double free_ = 0;
};

// Walks through the host nodes once. Activities get their times when they are
// launched, which works because everything they wait for was launched earlier.
class Simulation {
 public:
  Simulation(const DeviceProgram& program, const EditedProgram& edited)
      : program_(program),
        edited_(edited),
        ends_(program.activities.size()),
        queues_(size_t{2} * program.streams,
                Queue(std::max(kQueueDepth, program.deepest_queue))),
        step_end_(program.windows.size()),
        overlapped_end_(program.windows.size()) {}

  DeviceRun Run();

 private:
  void Launch(const HostNode& node);
  void StartEarly(uint32_t first);
  void Ended(uint32_t index, double end);
  bool Waits(uint32_t other) const;
  double LateBy(const DeviceNode& activity, double ready) const;
  void Return(const HostNode& node, uint32_t index);
  void BeginFirstStep();
  void RunNode(uint32_t i, DeviceRun& run);
  void RunLoneStep(DeviceRun& run);
  void EndStep(int32_t step, DeviceRun& run);

  const DeviceProgram& program_;
  const EditedProgram& edited_;
  std::vector<double> ends_;            // by activity
  std::vector<Queue> queues_;           // by stream, then one more for each
  std::vector<double> step_end_;        // by step
  std::vector<double> overlapped_end_;  // by step: what its optimizer waits for
  // The activities that the last StartEarly() has placed are in this range.
  uint32_t early_from_ = 0, early_to_ = 0;
  double now_ = 0;  // on the host
  double device_end_ = 0;
  double step_begin_ = 0;
};

// True if what waited for this activity still does: the edit has not moved it
// to where it delays nothing.
bool Simulation::Waits(uint32_t other) const {
  return edited_.place[other] == ActivityPlace::kOwnStream ||
         edited_.place[other] == ActivityPlace::kEarly;
}

void Simulation::Ended(uint32_t index, double end) {
  const DeviceNode& activity = program_.activities[index];
  ends_[index] = end;
  device_end_ = std::max(device_end_, end);
  if (activity.step < 0) return;
  double& last = step_end_[activity.step];
  last = std::max(last, end);
  if (edited_.place[index] == ActivityPlace::kOverlapped ||
      edited_.place[index] == ActivityPlace::kEarly) {
    double& overlapped = overlapped_end_[activity.step];
    overlapped = std::max(overlapped, end);
  }
}

// Places `first` and the later activities that can start before it was
// launched. They run in the order in which they can start, which need not be
// the recorded one: a loop over parameters begins with the first layer, whose
// gradient comes last.
void Simulation::StartEarly(uint32_t first) {
  std::vector<uint32_t> group;
  for (uint32_t i = first; i < program_.activities.size(); ++i) {
    if (edited_.place[i] != ActivityPlace::kEarly) continue;
    if (edited_.early_after[i] >= first) break;
    group.push_back(i);
  }
  early_from_ = first;
  early_to_ = group.back();
  std::vector<uint32_t> order = group;
  std::ranges::stable_sort(
      order, {}, [&](uint32_t i) { return ends_[edited_.early_after[i]]; });
  for (uint32_t i : order) {
    const DeviceNode& activity = program_.activities[i];
    Queue& queue = queues_[program_.streams + activity.stream];
    const double begin = std::max(ends_[edited_.early_after[i]], queue.free());
    const double end = begin + edited_.activity_ns[i];
    queue.Push(end, activity);
    Ended(i, end);
  }
  // What waited for one of them also waited for those before it on its stream.
  double last = ends_[first];
  for (uint32_t i : group) last = ends_[i] = std::max(ends_[i], last);
}

// Starts the activities of `node`. Each starts after its launch, after the one
// before it on its stream, and after the activities that it waits for.
void Simulation::Launch(const HostNode& node) {
  for (uint32_t i = node.first_activity;
       i < node.first_activity + node.activity_count; ++i) {
    const DeviceNode& activity = program_.activities[i];
    if (edited_.place[i] == ActivityPlace::kEarly) {
      if (i <= early_from_ || i > early_to_) StartEarly(i);
      continue;
    }
    Queue& queue = queues_[edited_.place[i] == ActivityPlace::kOwnStream
                               ? activity.stream
                               : program_.streams + activity.stream];
    const bool queued = queue.HoldsGraph(activity);
    // A full queue holds up the chain, unless the launch is by another thread.
    if (node.launches && !queued) now_ = std::max(now_, queue.room());
    double begin =
        now_ + activity.offset_ns + edited_.latency * activity.latency_ns;
    begin = std::max(begin, queue.free() + activity.overlap_ns);
    if (edited_.waits_for_streams[i]) {
      for (uint32_t w = 0; w < activity.wait_count; ++w) {
        const uint32_t other = program_.waits[activity.first_wait + w];
        if (Waits(other)) begin = std::max(begin, ends_[other]);
      }
    }
    if (activity.in_optimizer && activity.step >= 0) {
      begin = std::max(begin, overlapped_end_[activity.step]);
    }
    double late = LateBy(activity, begin);
    // The short gap before an activity goes with it. If it is later than that,
    // others held the device, and now hold up the next one.
    if (edited_.activity_ns[i] <= 0) {
      late = std::max(late - static_cast<double>(kQueuedLatencyNs), 0.0);
    }
    begin += late + edited_.latency * activity.opaque_ns;
    const double end = begin + edited_.activity_ns[i];
    queued ? queue.Extend(end) : queue.Push(end, activity);
    Ended(i, end);
  }
}

// Returns how many ns after `ready` the activity starts because it shares the
// device. If the activity that held the device is known, this one starts when
// that one has ended, but at most as late as recorded.
double Simulation::LateBy(const DeviceNode& activity, double ready) const {
  const double late = activity.extra_ns * edited_.contention;
  if (activity.held_by == kNoActivity) return late;
  return std::clamp(ends_[activity.held_by] + activity.held_ns - ready, 0.0,
                    late);
}

// The call returns once what it waits for is done.
void Simulation::Return(const HostNode& node, uint32_t index) {
  const double returned = now_ + edited_.own_ns[index];
  now_ = returned;
  if (!edited_.waits[index]) return;
  if (node.wait == NodeWait::kDevice) {
    now_ = std::max(returned, device_end_ + node.tail_ns);
  } else if (node.wait == NodeWait::kActivity && Waits(node.target)) {
    now_ = std::max(returned, ends_[node.target] + node.tail_ns);
  }
}

void Simulation::EndStep(int32_t step, DeviceRun& run) {
  const double end = std::max({now_, step_end_[step], step_begin_});
  run.step_ns[step] = end - step_begin_;
  step_begin_ = end;
}

// When the first step starts, the device is still busy with the steps before
// it. Edits shorten those steps, too, so the lag scales with the device time.
void Simulation::BeginFirstStep() {
  step_begin_ = now_ + program_.first_lag_ns * edited_.contention;
  if (program_.first_lag_ns <= 0) return;
  for (Queue& queue : queues_) queue.Hold(step_begin_);
  device_end_ = std::max(device_end_, step_begin_);
}

void Simulation::RunNode(uint32_t i, DeviceRun& run) {
  const HostNode& node = program_.hosts[i];
  now_ += edited_.gap_ns[i];
  if (node.activity_count > 0) Launch(node);
  Return(node, i);
  if (node.step_end >= 0) EndStep(node.step_end, run);
}

void Simulation::RunLoneStep(DeviceRun& run) {
  const auto lone = static_cast<int32_t>(program_.steady.front());
  uint32_t begin = program_.first_host, end = 0;
  for (; end + 1 < program_.hosts.size(); ++end) {
    if (end == program_.first_host) BeginFirstStep();
    RunNode(end, run);
    const int32_t ended = program_.hosts[end].step_end;
    if (ended == lone) break;
    if (ended >= 0) begin = end + 1;
  }
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (Queue& queue : queues_) queue.CloseGraph();
    for (uint32_t i = begin; i <= end; ++i) RunNode(i, run);
    run.mean_ns += run.step_ns[lone] / kRepeats;
  }
}

DeviceRun Simulation::Run() {
  DeviceRun run;
  run.step_ns.assign(program_.windows.size(), 0);
  if (program_.steady.size() == 1) {
    RunLoneStep(run);
    return run;
  }
  for (uint32_t i = 0; i < program_.hosts.size(); ++i) {
    if (i == program_.first_host) BeginFirstStep();
    RunNode(i, run);
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
