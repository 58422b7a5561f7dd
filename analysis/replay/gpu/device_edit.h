// An Edit brought down to single nodes of a DeviceProgram: how long each one
// takes, what still waits, and on which stream a work runs.
#pragma once

#include <cstdint>
#include <vector>

#include "edit/edit.h"
#include "replay/gpu/device_program.h"

namespace stepscope {

enum class WorkPlace : uint8_t {
  kOwnStream,
  kAside,       // beside its stream; nothing waits for it
  kOverlapped,  // beside its stream; the optimizer waits for it
};

struct EditedProgram {
  // By host node.
  std::vector<double> gap_ns;  // before the call
  std::vector<double> own_ns;  // of the call itself
  std::vector<bool> waits;
  // By work.
  std::vector<double> work_ns;
  std::vector<WorkPlace> place;
  std::vector<bool> waits_for_streams;
  // Late starts that no edge explains grow and shrink with the device time.
  double contention = 1;
  double latency = 1;  // from launching to starting
};

// As it was recorded.
EditedProgram Unedited(const DeviceProgram& program);

// `unedited` is Unedited(program): many edits are applied to one program.
// What `edited` held is lost; its memory is used again.
void Apply(const Edit& edit, const DeviceProgram& program,
           const EditedProgram& unedited, EditedProgram& edited);

// Without any device time: the host's own pace.
EditedProgram HostOnly(const EditedProgram& unedited);

// The least time per step that the loader's workers under `edit` need for its
// batches on the cores there are; 0 if unknown or if no worker makes them.
double BatchPeriodNs(const Edit& edit, const DeviceProgram& program);

}  // namespace stepscope
