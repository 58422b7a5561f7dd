// The rules that no program here provokes, and why.
#include "pattern.h"

namespace gallery {

std::vector<Absent> AbsentRules() {
  // LibTorch's wheel ships neither NCCL's nor gloo's headers.
  constexpr const char* kRanks = "needs several ranks, with NCCL";
  return {
      {"clock-throttle", "no program makes a device hot on purpose"},
      {"dataparallel", "needs two GPUs in one process"},
      {"ddp-bucket-shape", kRanks},
      {"ddp-extra-copies", kRanks},
      {"ddp-unused-search", kRanks},
      {"exposed-collective", kRanks},
      {"fragmentation", "depends on the allocator's history"},
      {"gc-pause", "only Python collects garbage"},
      {"imbalanced-load", kRanks},
      {"missing-no-sync", kRanks},
      {"straggler-rank", kRanks},
  };
}

}  // namespace gallery
