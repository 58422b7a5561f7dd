// DeviceReplay: the recorded steps of a run with a GPU, run again under edits.
// It speaks only if replaying them unchanged gives the measured step within
// 3 %, replaying them without any device time gives the host's own time within
// 5 %, and at most 5 % of the works have no launch (rules.md 2.4).
#pragma once

#include <stepscope/report.h>

#include <vector>

#include "edit/edit.h"
#include "replay/gpu/device_edit.h"
#include "replay/gpu/device_program.h"

namespace stepscope {

class DeviceReplay {
 public:
  explicit DeviceReplay(DeviceProgram program);

  const ReplayCheck& check() const { return check_; }
  const DeviceProgram& program() const { return program_; }

  // The mean steady step in ns under `edit`; per sample of the recorded batch
  // if the batch grows.
  double StepNs(const Edit& edit) const;

 private:
  void Check();

  DeviceProgram program_;
  EditedProgram unedited_;
  mutable EditedProgram scratch_;  // of StepNs(): one thread asks
  ReplayCheck check_;
  double unchanged_ns_ = 0;  // StepNs({}), which is asked for often
};

}  // namespace stepscope
