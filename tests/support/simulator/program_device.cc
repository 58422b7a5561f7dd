#include "support/simulator/program_device.h"

#include <algorithm>

namespace stepscope::simulator {
namespace {

constexpr double kNever = 1e300;
// Both directions together carry this factor more than one direction.
constexpr double kDuplex = 1.35;
// During a copy, kernels lose this share of their memory bandwidth.
constexpr double kCopyBeside = 0.02;
// After a sleep, the device starts slowly.
constexpr double kSleepsAfterNs = 200'000, kColdNs = 1'500;

bool IsEvent(const DeviceTask& task) {
  return task.is == WorkIs::kMark || task.is == WorkIs::kWait;
}

}  // namespace

void Device::Put(int index, double now) {
  DeviceTask& task = tasks_[index];
  task.submitted = now + machine_.latency_ns;
  task.left = task.amount;
  Stream& stream = streams_[{task.device, task.stream}];
  stream.queue.push_back(index);
  stream.last = index;
  ++open_;
  if (!IsEvent(task)) ++outstanding_;
}

int Device::LastOf(int64_t stream) const {
  const auto found = streams_.find({0, stream});
  return found == streams_.end() ? -1 : found->second.last;
}

void Device::Finish(Stream& stream, DeviceTask& task, double now) {
  task.done = true;
  task.running = false;
  task.end = now;
  stream.queue.pop_front();
  --open_;
  if (IsEvent(task)) return;
  --outstanding_;
  stream.free_at = now + machine_.between_ns;
  idle_since_ = now;
}

bool Device::Begin(double now) {
  bool any = false;
  for (auto& [id, stream] : streams_) {
    while (!stream.queue.empty()) {
      DeviceTask& task = tasks_[stream.queue.front()];
      if (task.running || now < task.submitted) break;
      if (task.is == WorkIs::kWait) {
        if (task.mark >= 0 && !tasks_[task.mark].done) break;
      } else if (task.is != WorkIs::kMark) {
        if (now < stream.free_at) break;
        task.running = true;
        task.begin = now;
        if (loads_[task.device].fill == 0 &&
            now - idle_since_ > kSleepsAfterNs && !task.on_bus &&
            task.is != WorkIs::kDelay) {
          task.left += kColdNs;
        }
        if (task.is == WorkIs::kCollective) {
          ++meetings_[task.meeting].arrived;
          meetings_[task.meeting].left =
              std::max(meetings_[task.meeting].left, task.amount);
        }
        Measure();
        any = true;
        break;
      }
      task.begin = now;
      Finish(stream, task, now);
      any = true;
    }
  }
  return any;
}

void Device::Measure() {
  loads_ = {};
  for (const auto& [id, stream] : streams_) {
    if (stream.queue.empty()) continue;
    const DeviceTask& task = tasks_[stream.queue.front()];
    if (!task.running) continue;
    if (task.on_bus) {
      Load& load = loads_[task.device];
      ++(task.upload ? load.uploads : load.downloads);
    } else {
      loads_[task.device].fill += task.fill;
    }
  }
}

double Device::RateOf(const DeviceTask& task) const {
  if (task.is == WorkIs::kDelay) return 1;
  const Load& load = loads_[task.device];
  if (task.on_bus) {
    const double both =
        load.uploads > 0 && load.downloads > 0 ? kDuplex / 2 : 1;
    const int beside = task.upload ? load.uploads : load.downloads;
    return std::min(task.rate, machine_.pcie * both / std::max(beside, 1));
  }
  double rate = load.fill > 1 ? 1 / load.fill : 1;
  if (load.uploads + load.downloads > 0) rate *= 1 - kCopyBeside;
  return rate;
}

double Device::Next(double now) const {
  double next = kNever;
  for (const auto& [id, stream] : streams_) {
    if (stream.queue.empty()) continue;
    const DeviceTask& task = tasks_[stream.queue.front()];
    if (task.is == WorkIs::kCollective && task.running) {
      const Meeting& meeting = meetings_[task.meeting];
      if (meeting.arrived >= meeting.ranks) {
        next = std::min(next, now + meeting.left);
      }
    } else if (task.running) {
      next = std::min(next, now + task.left / RateOf(task));
    } else if (now < task.submitted) {
      next = std::min(next, task.submitted);
    } else if (!IsEvent(task) && now < stream.free_at) {
      next = std::min(next, stream.free_at);
    }
  }
  return next;
}

void Device::Advance(double now, double dt) {
  bool ended = false;
  std::vector<std::pair<Stream*, DeviceTask*>> ends;
  for (auto& [id, stream] : streams_) {
    if (stream.queue.empty()) continue;
    DeviceTask& task = tasks_[stream.queue.front()];
    if (!task.running) continue;
    if (task.is == WorkIs::kCollective) {
      if (meetings_[task.meeting].done) ends.push_back({&stream, &task});
      continue;
    }
    const double rate = RateOf(task);
    task.left -= dt * rate;
    // A thousandth of a nanosecond is rounding.
    if (task.left <= 1e-3 * rate) ends.push_back({&stream, &task});
  }
  for (auto& [stream, task] : ends) {
    Finish(*stream, *task, now + dt);
    ended = true;
  }
  if (ended) Measure();
}

}  // namespace stepscope::simulator
