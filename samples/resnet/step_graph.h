// StepGraph: a training step that is captured once and then replayed by the
// device, with hardly any work on the host. For one thread.
#pragma once

#include <absl/status/statusor.h>
#include <torch/torch.h>

#include <functional>
#include <memory>

#include "captured_work.h"
#include "image_batches.h"

namespace resnet {

// Makes a CUDA graph. The code needs LibTorch's CUDA half at link time, so it
// is in a separate library beside this program, which is loaded here. REQUIRES:
// the CUDA half is loaded (OpenDevice). Errors: Unavailable (not built because
// there were no CUDA headers, or it cannot be loaded).
absl::StatusOr<std::unique_ptr<CapturedWork>> MakeCudaGraph();

class StepGraph {
 public:
  // The number of steps that run normally before one is captured. By then,
  // lazily loaded libraries are set up, and the momentum buffers exist.
  static constexpr int kEagerSteps = 3;

  // A step on a batch on the device. Returns the loss. It must do the same work
  // every time.
  using Step = std::function<torch::Tensor(const Batch&)>;

  explicit StepGraph(std::unique_ptr<CapturedWork> work)
      : work_(std::move(work)) {}

  // From now on, puts the work that this thread starts on a separate stream,
  // because the default stream cannot be captured. Does nothing for a CPU.
  static void UseSideStream(torch::Device device);

  // Runs one step. The returned loss is overwritten by the next step. REQUIRES:
  // all batches have the same shape and type.
  torch::Tensor Run(const Batch& batch, const Step& step);

 private:
  std::unique_ptr<CapturedWork> work_;
  int done_ = 0;
  // The input and the result of the captured step.
  Batch batch_;
  torch::Tensor loss_;
};

}  // namespace resnet
