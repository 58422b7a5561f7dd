// FindWeightsOnHost(): weights that are kept in host memory and copied to the
// device in each step (CPU offload).
#pragma once

#include <cstdint>
#include <vector>

#include "context/analysis_context.h"
#include "evidence/host_copies.h"

namespace stepscope {

enum class WeightsOnHost : uint8_t {
  kNone,
  // Layer by layer: the uploads of a step have many sizes and alternate with
  // kernels. A batch is uploaded before its kernels are launched, and the
  // batches of several passes in a step have the same sizes.
  kByLayer,
  // Whole models: the program trains nothing, and tensors of the same sizes are
  // uploaded and downloaded again.
  kAndBack,
};

// `uploads` and `downloads` are those of steady steps.
WeightsOnHost FindWeightsOnHost(const AnalysisContext& context,
                                const std::vector<const HostCopy*>& uploads,
                                const std::vector<const HostCopy*>& downloads);

}  // namespace stepscope
