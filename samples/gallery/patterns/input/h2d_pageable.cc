// h2d-pageable: batches are in ordinary memory, from which the driver cannot
// copy directly, so each upload makes the host wait.
// Fix: collate into pinned memory and copy with non_blocking.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainH2dPageable(const Run& run) {
  torch::nn::Sequential network = Mlp({16384, 1024, 1024, 10}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  // Two batches that alternate, as if a loader had made them.
  std::vector<Batch> ready;
  for (int i = 0; i < 2; ++i) {
    Batch batch = MakeBatch(1024, 16384, 10, torch::kCPU);
    if (run.fixed && run.device.is_cuda()) {
      batch = {batch.inputs.pin_memory(), batch.targets.pin_memory()};
    }
    ready.push_back(batch);
  }

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    const Batch& batch = ready[step % 2];
    TrainStep(network, sgd,
              {batch.inputs.to(run.device, /*non_blocking=*/run.fixed),
               batch.targets.to(run.device, /*non_blocking=*/run.fixed)});
    profile.Step();
  }
}

}  // namespace

extern const Pattern kH2dPageable = {
    .rule = "h2d-pageable",
    .habit = "uploads batches from ordinary memory",
    .fix = "pinned memory and non_blocking",
    .train = &TrainH2dPageable,
    .needs_gpu = true,
    .also = {{"h2d-blocking", "the same upload, seen from the host"}}};

}  // namespace gallery
