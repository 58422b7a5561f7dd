// One simulated device: streams run in order, kernels share the device, and
// both copy directions share a bus. It is a fluid model: between two events,
// all rates are constant.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "support/simulator/program_code.h"

namespace stepscope::simulator {

// The state of a collective.
struct Meeting {
  int ranks = 0;  // number of ranks that take part
  int arrived = 0;
  double left = 0;  // ns, counted after all ranks have arrived
  bool done = false;
};

class Device {
 public:
  Device(const Machine& machine, std::vector<DeviceTask>& tasks,
         std::vector<Meeting>& meetings)
      : machine_(machine), tasks_(tasks), meetings_(meetings) {}

  void Put(int task, double now);
  // Starts all tasks that can start at `now`. Returns true if any started or
  // passed.
  bool Begin(double now);
  // Returns the next time at which something may happen without a new event.
  double Next(double now) const;
  // Advances by dt ns and ends the tasks that finish.
  void Advance(double now, double dt);

  bool HasRoom() const { return outstanding_ < machine_.queue; }
  bool IsIdle() const { return open_ == 0; }
  // Returns the task last put into the stream; -1 if there is none.
  int LastOf(int64_t stream) const;

 private:
  using Key = std::pair<int, int64_t>;  // device and stream
  struct Stream {
    std::deque<int> queue;
    double free_at = 0;
    int last = -1;
  };
  double RateOf(const DeviceTask& task) const;
  void Finish(Stream& stream, DeviceTask& task, double now);
  // Current load of the device and the bus.
  struct Load {
    double fill = 0;
    int uploads = 0, downloads = 0;
  };
  void Measure();

  const Machine& machine_;
  std::vector<DeviceTask>& tasks_;
  std::vector<Meeting>& meetings_;
  std::map<Key, Stream> streams_;
  std::array<Load, kMostGpus> loads_;  // per device
  int outstanding_ = 0, open_ = 0;
  double idle_since_ = 0;
};

}  // namespace stepscope::simulator
