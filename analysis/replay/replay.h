// Replay: the recorded steps run again under edits, as a discrete-event
// simulation of the training thread, its intra-op threads and the loader's
// workers on the usable cores (rules.md 2.3b).
//
// Where more threads can run than there are cores, a parallel op goes at the
// pace of its slowest thread: threads that share a core run at half speed, and
// their peers wait at the barrier. Threads of a pool keep their cores busy for
// a while after an op, so they compete in the gaps between ops too.
#pragma once

#include <stepscope/report.h>

#include <optional>

#include "edit/edit.h"
#include "replay/cpu/graph.h"
#include "replay/gpu/device_replay.h"

namespace stepscope {

class Replay {
 public:
  Replay() = default;  // does not speak
  explicit Replay(CpuProgram program);
  explicit Replay(DeviceProgram program);

  const ReplayCheck& check() const { return check_; }
  const CpuProgram& program() const { return program_; }
  // nullptr for runs without a GPU.
  const DeviceProgram* device() const {
    return device_ ? &device_->program() : nullptr;
  }

  // The mean step in ns under `edit`. REQUIRES: check().valid.
  double StepNs(const Edit& edit) const;

 private:
  struct Times {  // per step, or sample of the recorded batch
    double step_ns = 0;
    double loading_ns = 0;  // making or waiting for batches
  };
  Times Run(const Edit& edit) const;
  double Simulate(const Edit& edit) const;
  void Calibrate();

  std::optional<DeviceReplay> device_;  // runs with a GPU
  CpuProgram program_;
  ReplayCheck check_;
  double recorded_slowdown_ = 1;  // of the training thread's work by workers
                                  // that ran beside it while it was recorded
  double batch_io_ns_ = 0;        // of a worker's batch: waiting for storage
};

}  // namespace stepscope
