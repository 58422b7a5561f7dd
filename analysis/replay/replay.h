// Replay: predicts the step time under an Edit by running the recorded steps
// again in a discrete-event simulation. Runs with a GPU use DeviceReplay; this
// class simulates CPU-only runs: the training thread, its intra-op threads and
// the loader's workers, on the usable cores.
//
// If more threads run than there are cores, a parallel op takes as long as its
// slowest thread: threads that share a core run at half speed, and the others
// wait for them at the end of the op. The threads of the pool spin for a while
// after an op, so they also take cores from workers between ops.
// docs/analysis.md describes the model and its constants.
#pragma once

#include <stepscope/report.h>

#include <optional>
#include <string>
#include <vector>

#include "edit/edit.h"
#include "replay/cpu/graph.h"
#include "replay/gpu/device_replay.h"
#include "replay/model/replay_parameters.h"

namespace stepscope {

// Not thread-safe, const or not: StepNs() uses scratch memory and remembers its
// results.
class Replay {
 public:
  Replay() = default;  // not valid
  // Calibrates the model, and checks that replaying the program unchanged gives
  // its measured step within 3 %.
  explicit Replay(CpuProgram program);
  explicit Replay(DeviceProgram program);

  // Whether predictions are valid, and if not, why.
  const ReplayCheck& check() const { return check_; }
  // Marks predictions as invalid, even if the unchanged replay is exact.
  void Distrust(std::string why);
  // Empty for runs with a GPU.
  const CpuProgram& program() const { return program_; }
  // nullptr for CPU-only runs.
  const DeviceProgram* device() const {
    return device_ ? &device_->program() : nullptr;
  }

  // For runs with a GPU: the step time without the recorder / the recorded step
  // time. 1 for other runs, or if the recorder's cost is not known.
  double unrecorded_frac() const {
    return device_ && check_.valid ? device_->unrecorded_frac() : 1;
  }

  // Returns the mean steady step in ns under `edit`, without the recorder; with
  // edit.batch != 1, per as many samples as a recorded step has. REQUIRES:
  // check().valid.
  double StepNs(const Edit& edit,
                const ReplayParameters& parameters = {}) const;

 private:
  // Means per step; with edit.batch != 1, per recorded batch of samples.
  struct Times {
    double step_ns = 0;
    double loading_ns = 0;  // for making or awaiting batches (training thread)
  };
  double Predict(const Edit& edit, const ReplayParameters& parameters) const;
  Times Run(const Edit& edit, const ReplayParameters& parameters = {}) const;
  double Simulate(const Edit& edit,
                  const ReplayParameters& parameters = {}) const;
  void Calibrate();

  std::optional<DeviceReplay> device_;  // runs with a GPU
  CpuProgram program_;
  ReplayCheck check_;
  double unchanged_ns_ = 0;  // CPU-only: the step without any edit
  // Calibrated, for recordings with loader workers:
  double recorded_slowdown_ = 1;  // of the training thread's work, by workers
                                  // that ran at the same time
  double batch_io_ns_ = 0;        // a worker's time per batch without CPU
  // What StepNs() returned. Choosing, sizing and planning changes asks for many
  // edits more than once.
  struct Predicted {
    Edit edit;
    ReplayParameters parameters;
    double step_ns = 0;
  };
  mutable std::vector<Predicted> predicted_;
};

}  // namespace stepscope
