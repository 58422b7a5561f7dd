// One device of the simulator: streams in order, kernels that share it, and a
// bus that both directions share. Fluid: between two events everything goes at
// a constant rate.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "support/simulator/program_code.h"

namespace stepscope::simulator {

// Where a collective stands.
struct Meeting {
  int ranks = 0;  // that take part
  int arrived = 0;
  double left = 0;  // ns, once all are there
  bool done = false;
};

class Device {
 public:
  Device(const Machine& machine, std::vector<DeviceTask>& tasks,
         std::vector<Meeting>& meetings)
      : machine_(machine), tasks_(tasks), meetings_(meetings) {}

  void Put(int task, double now);
  // Begins what can begin at `now`; true if anything began or passed.
  bool Begin(double now);
  // The next moment at which something may happen by itself.
  double Next(double now) const;
  // Lets dt ns pass, and ends what ends.
  void Advance(double now, double dt);

  bool HasRoom() const { return outstanding_ < machine_.queue; }
  bool IsIdle() const { return open_ == 0; }
  // The task last put into the stream; -1 if there was none.
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
  // What shares the device and the bus at this moment.
  struct Load {
    double fill = 0;
    int uploads = 0, downloads = 0;
  };
  void Measure();

  const Machine& machine_;
  std::vector<DeviceTask>& tasks_;
  std::vector<Meeting>& meetings_;
  std::map<Key, Stream> streams_;
  std::array<Load, kMostGpus> loads_;  // by device
  int outstanding_ = 0, open_ = 0;
  double idle_since_ = 0;
};

}  // namespace stepscope::simulator
