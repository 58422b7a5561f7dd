// CollectiveCalls: completes Collectives with what the host's rows say: the
// call that issued each one, its kind and size, and whether it reduces
// gradients.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "device/collective.h"
#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

// Valid while the Trace and the Steps live. Keeps no state about collectives.
class CollectiveCalls {
 public:
  CollectiveCalls(const Trace& trace, const OpTree& tree, const Steps& steps);

  // The index of the step whose host window contains `ns`, or kNoStep.
  size_t StepAt(int64_t ns) const;
  // The index of the step whose tiled span contains `ns`, or kNoStep. For
  // kernels without a recorded launch.
  size_t TileAt(int64_t ns) const;

  // Sets kind, size, group and sequence from the collective's metadata.
  void ApplyMetadata(const Communication& row, Collective& one) const;
  // Sets the kind from the range around the call ("nccl:all_to_all"), if the
  // kernel's name does not say it.
  void NameByRange(Collective& one) const;
  // Sets call, thread and in_backward from `innermost`, the op that issued it
  // (may be kNone), and kind and size if they are still unknown.
  void Describe(RowId innermost, Collective& one) const;
  // Sets in_backward and gradient. REQUIRES: everything else is set.
  void MarkGradient(Collective& one) const;

 private:
  void SizeFromInputs(RowId op, Collective& one) const;

  const Trace& trace_;
  const Steps& steps_;
  std::vector<bool> autograd_;  // by thread
  // By step: the first and the last start of an autograd node.
  std::vector<int64_t> first_backward_, last_backward_;
};

}  // namespace stepscope
