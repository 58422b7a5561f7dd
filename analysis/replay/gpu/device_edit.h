// EditedProgram: an Edit applied to the single nodes of a DeviceProgram: how
// long each one takes, which calls still wait, and where each activity runs.
#pragma once

#include <cstdint>
#include <vector>

#include "edit/edit.h"
#include "replay/gpu/device_program.h"
#include "replay/model/replay_parameters.h"

namespace stepscope {

enum class ActivityPlace : uint8_t {
  kOwnStream,
  kAside,       // beside its stream; nothing waits for it
  kOverlapped,  // beside its stream; the optimizer waits for it
};

// Vectors have one entry per host node or per activity of the program.
struct EditedProgram {
  // By host node.
  std::vector<double> gap_ns;  // host time before the call
  std::vector<double> own_ns;  // of the call, without its wait
  std::vector<bool> waits;
  // By activity.
  std::vector<double> activity_ns;
  std::vector<ActivityPlace> place;
  std::vector<bool> waits_for_streams;
  // Factors for all activities. Late starts that no edge explains come from
  // sharing the device, so they scale with the device time that is left.
  double contention = 1;
  double latency = 1;  // from launch to start on an idle device
};

// The program as it was recorded.
EditedProgram Unedited(const DeviceProgram& program);

// `recorded` with host times as they are without the recorder.
EditedProgram WithoutRecorder(const DeviceProgram& program,
                              const EditedProgram& recorded);

// Sets `edited` to `unedited` with `edit` applied. `edited` is passed in so
// that its memory is used again: many edits are applied to one program.
// REQUIRES: unedited is Unedited(program), with or without the recorder.
void Apply(const Edit& edit, const ReplayParameters& parameters,
           const DeviceProgram& program, const EditedProgram& unedited,
           EditedProgram& edited);

// The program with all device time removed: the time of its steps is the
// host's own. For the check of DeviceReplay.
EditedProgram HostOnly(const EditedProgram& unedited);

// Returns the least time in ns per step in which the loader workers of `edit`,
// or else the recorded ones, on the cores there are, make the batches of a step
// as it was recorded. 0 if that is unknown or no worker makes batches.
double BatchPeriodNs(const Edit& edit, const ReplayParameters& parameters,
                     const DeviceProgram& program);

}  // namespace stepscope
