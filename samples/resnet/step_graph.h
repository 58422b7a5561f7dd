// StepGraph: a training step that is captured once and from then on replayed by
// the device, with hardly any work on the host. For one thread.
#pragma once

#include <absl/status/statusor.h>
#include <torch/torch.h>

#include <functional>
#include <memory>

#include "captured_work.h"
#include "image_batches.h"

namespace resnet {

// A CUDA graph. It needs LibTorch's CUDA half at link time, so it comes from a
// library of its own, which lies beside this program and is loaded here.
// REQUIRES: the CUDA half is loaded (OpenDevice).
// Errors: Unavailable (not built, as there were no CUDA headers; cannot load).
absl::StatusOr<std::unique_ptr<CapturedWork>> MakeCudaGraph();

class StepGraph {
 public:
  // Steps that run normally before one is captured. By then libraries that load
  // lazily are set up, and the momentum buffers exist.
  static constexpr int kEagerSteps = 3;

  // A step on a batch that lies on the device. Returns the loss. It must do
  // the same work every time.
  using Step = std::function<torch::Tensor(const Batch&)>;

  explicit StepGraph(std::unique_ptr<CapturedWork> work)
      : work_(std::move(work)) {}

  // From now on, puts the work that this thread starts on a stream of its own,
  // because the default stream cannot be captured. Does nothing for a CPU.
  static void UseSideStream(torch::Device device);

  // One step. The loss it returns is overwritten by the next one.
  // REQUIRES: batches of one shape and type.
  torch::Tensor Run(const Batch& batch, const Step& step);

 private:
  std::unique_ptr<CapturedWork> work_;
  int done_ = 0;
  // What the captured step reads and leaves behind.
  Batch batch_;
  torch::Tensor loss_;
};

}  // namespace resnet
