// DeviceReplay: predicts the step time of a run with a GPU under an Edit by
// simulating the recorded steps again.
//
// Predictions are valid if four checks pass: replaying the steps unchanged
// gives the measured step within 3 %; replaying them without any device time
// gives the host's own time within 5 %; the launch of at most 5 % of the
// activities is unknown (launches before the recording are known to be
// earlier); and a single steady step is not a warm-up step. The second check
// matters because a model with wrong dependencies can still pass the first.
#pragma once

#include <stepscope/report.h>

#include <vector>

#include "edit/edit.h"
#include "replay/gpu/device_edit.h"
#include "replay/gpu/device_program.h"
#include "replay/model/replay_parameters.h"

namespace stepscope {

// Not thread-safe, const or not: StepNs() uses scratch memory.
class DeviceReplay {
 public:
  explicit DeviceReplay(DeviceProgram program);

  const ReplayCheck& check() const { return check_; }
  const DeviceProgram& program() const { return program_; }

  // The step time without the recorder / the recorded step time.
  double unrecorded_frac() const {
    return recorded_ns_ > 0 ? unchanged_ns_ / recorded_ns_ : 1;
  }

  // Returns the mean steady step in ns under `edit`, without the recorder; with
  // edit.batch != 1, per as many samples as a recorded step has.
  double StepNs(const Edit& edit,
                const ReplayParameters& parameters = {}) const;

 private:
  void Check();

  DeviceProgram program_;
  EditedProgram unedited_;
  mutable EditedProgram scratch_;  // used by StepNs() only
  ReplayCheck check_;
  double recorded_ns_ = 0;   // the unchanged step, with the recorder
  double unchanged_ns_ = 0;  // StepNs({}), kept because it is asked for often
};

}  // namespace stepscope
