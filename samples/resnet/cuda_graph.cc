#include "cuda_graph.h"

#include <ATen/cuda/CUDAGraph.h>

namespace resnet {
namespace {

class CudaGraph final : public CapturedWork {
 public:
  // Thread-local mode, because threads of the loader may pin memory meanwhile:
  // only this thread's calls must be allowed in a capture.
  void Begin() override {
    // {0, 0}: the graph makes its own memory pool.
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  }
  void End() override { graph_.capture_end(); }
  void Replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace
}  // namespace resnet

extern "C" __attribute__((visibility("default"))) resnet::CapturedWork*
resnet_make_cuda_graph() {
  return new resnet::CudaGraph();
}
