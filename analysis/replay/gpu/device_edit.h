// EditedProgram: an Edit applied to the nodes of a DeviceProgram: how long each
// node takes, which calls still wait, and where each activity runs.
#pragma once

#include <cstdint>
#include <vector>

#include "edit/edit.h"
#include "replay/gpu/device_program.h"
#include "replay/model/replay_parameters.h"

namespace stepscope {

enum class ActivityPlace : uint8_t {
  kOwnStream,
  kAside,       // on a separate stream; nothing waits for it
  kOverlapped,  // on a separate stream; the optimizer waits for it
  kEarly,       // on a separate stream, after EditedProgram::early_after; the
                // optimizer and what waited for it wait for it
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
  // For activities at ActivityPlace::kEarly, the one after which they start.
  // Empty if there are none.
  std::vector<uint32_t> early_after;
  // Factors for all activities. Late starts that no edge explains are caused by
  // sharing the device, so they scale with the remaining device time.
  double contention = 1;
  double latency = 1;  // from launch to start on an idle device
};

// The program as it was recorded.
EditedProgram Unedited(const DeviceProgram& program);

// Returns `recorded` with the cost of the recorder removed from the host times.
EditedProgram WithoutRecorder(const DeviceProgram& program,
                              const EditedProgram& recorded);

// Sets `edited` to `unedited` with `edit` applied. `edited` is passed in to
// reuse its memory, because many edits are applied to one program.
// REQUIRES: unedited is Unedited(program), with or without the recorder.
void Apply(const Edit& edit, const ReplayParameters& parameters,
           const DeviceProgram& program, const EditedProgram& unedited,
           EditedProgram& edited);

// Returns the program with all device time removed, so that its steps take only
// the host's own time. Used by the checks of DeviceReplay.
EditedProgram HostOnly(const EditedProgram& unedited);

// Returns the least time in ns in which the loader workers make the batches of
// one recorded step on the available cores. The workers are those of `edit`, or
// the recorded ones if it does not set them. 0 if the time is unknown or no
// worker makes batches.
double BatchPeriodNs(const Edit& edit, const ReplayParameters& parameters,
                     const DeviceProgram& program);

}  // namespace stepscope
