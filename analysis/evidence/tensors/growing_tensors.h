// GrowingTensors: finds tensors that aten::cat makes longer again and again,
// each time copying all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "context/analysis_context.h"
#include "evidence/tensors/growth.h"

namespace stepscope {

// Valid while the context lives.
class GrowingTensors {
 public:
  explicit GrowingTensors(const AnalysisContext& context);

  // Appends those among `rows` to `found`, with `step` as their step. `rows`
  // are forward ops of the training thread in time order. At least
  // `least_calls` calls must make tensors of the same sizes longer.
  void AddThose(std::span<const RowId> rows, size_t step, int64_t least_calls,
                std::vector<Growth>& found) const;

 private:
  // Returns the time of an op and its nodes. On a run with a GPU, this is
  // device time. On a CPU, it includes the time until the next op, in which the
  // shorter tensor is freed.
  double TimeOf(RowId row, bool& trains) const;

  const AnalysisContext& m_;
  std::vector<double> device_;  // of the kernels that each op launched
};

}  // namespace stepscope
