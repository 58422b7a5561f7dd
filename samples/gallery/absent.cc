// The rules that no program here provokes, and why.
#include "pattern.h"

namespace gallery {

std::vector<Absent> AbsentRules() {
  // LibTorch's wheel ships neither NCCL's nor gloo's headers.
  constexpr const char* kRanks = "needs several ranks, with NCCL";
  constexpr const char* kPython = "a habit of models in Python";
  return {
      {"attention-by-hand", kPython},
      {"broadcast-contraction", kPython},
      {"clock-throttle", "no program makes a device hot on purpose"},
      {"cuda-graph-obstacles",
       "host-sync and allocator-churn are such obstacles; it names them all"},
      {"constant-rebuilt", kPython},
      {"contended-cores", "depends on what else the machine runs"},
      {"d2h-pageable", "depends on what is done with results"},
      {"dataparallel", "needs two GPUs in one process"},
      {"ddp-bucket-shape", kRanks},
      {"ddp-extra-copies", kRanks},
      {"ddp-unused-search", kRanks},
      {"dense-embedding-gradient", kPython},
      {"diagonal-product", kPython},
      {"direct-convolution", kPython},
      {"explicit-inverse", kPython},
      {"exposed-collective", kRanks},
      {"foreach-not-fused", "torch::optim has no foreach optimizer"},
      {"fp8-candidate", "needs a Hopper GPU, and weights of gigabytes"},
      {"fragmentation", "depends on the allocator's history"},
      {"gc-pause", "only Python collects garbage"},
      {"function-by-hand", kPython},
      {"frequent-validation", "depends on how the program is used"},
      {"fsdp-exposed", kRanks},
      {"graph-breaks", "LibTorch does not compile"},
      {"graph-idle", "depends on what a recorder leaves out of a graph"},
      {"growing-prefix", kPython},
      {"ignored-labels", kPython},
      {"imbalanced-load", kRanks},
      {"invariant-in-loop", kPython},
      {"large-vocabulary-loss", kPython},
      {"late-selection", kPython},
      {"launch-bound", "where a program causes it, that cause is reported"},
      {"loader-restarted", "only Python's loader tells that it starts"},
      {"missing-no-sync", kRanks},
      {"norms-one-by-one", kPython},
      {"one-hot-product", kPython},
      {"output-layer-in-loop", kPython},
      {"padded-to-maximum", kPython},
      {"parameter-penalty", kPython},
      {"pipeline-bubble", kRanks},
      {"product-order", kPython},
      {"python-between-ops", kPython},
      {"recompute-cost", "LibTorch has no checkpointing"},
      {"rnn-in-python", kPython},
      {"recompiling", "LibTorch does not compile"},
      {"recomputed-weights", kPython},
      {"repeated-backward", kPython},
      {"repeated-forward", kPython},
      {"repeated-rows", kPython},
      {"shifted-buffer", kPython},
      {"slow-bus", "depends on the machine"},
      {"slow-half-products", "depends on the CPU"},
      {"sparse-kept-dense", kPython},
      {"straggler-rank", kRanks},
      {"uneven-lengths", "depends on the data"},
      {"unread-gradients", kPython},
      {"weighted-draw", kPython},
      {"work-between-steps",
       "no range marks the step of LibTorch's optimizers"},
  };
}

}  // namespace gallery
