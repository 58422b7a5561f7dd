// CollectiveCalls: what the host rows say about one collective: the call that
// issued it, its kind, its size, and whether it reduces gradients.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "device/collective.h"
#include "steps/steps.h"

namespace stepscope {

// Valid while the Trace and the Steps live.
class CollectiveCalls {
 public:
  CollectiveCalls(const Trace& trace, const Steps& steps);

  // The step whose host window holds `ns`; kNoStep if none.
  size_t StepAt(int64_t ns) const;
  // The step whose tiled span does, for work whose launch was not recorded.
  size_t TileAt(int64_t ns) const;

  // From the innermost op that issued it: the call, and kind and size where
  // they are not known yet.
  void Describe(RowId innermost, Collective& one) const;
  // From the range around the call ("nccl:all_to_all"): the kind.
  void NameByRange(Collective& one) const;
  // From its metadata: kind, size, group, sequence.
  void Size(const Communication& row, Collective& one) const;
  // in_backward and gradient, after all else is known.
  void Judge(Collective& one) const;

 private:
  void SizeFromInputs(RowId op, Collective& one) const;

  const Trace& trace_;
  const Steps& steps_;
  std::vector<bool> autograd_;                           // by thread
  std::vector<int64_t> first_backward_, last_backward_;  // by step
};

}  // namespace stepscope
