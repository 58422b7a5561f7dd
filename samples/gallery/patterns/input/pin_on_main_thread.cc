// pin-on-main-thread: the training thread copies each batch into newly pinned
// memory, which costs more than the pinning saves.
// Fix: collate into a few pinned buffers that are reused.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainPinOnMainThread(const Run& run) {
  torch::nn::Sequential network = Mlp({4096, 1024, 10}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  Batch batch = MakeBatch(2048, 4096, 10, torch::kCPU);
  const bool cuda = run.device.is_cuda();
  if (run.fixed && cuda) batch.inputs = batch.inputs.pin_memory();
  const torch::Tensor targets = batch.targets.to(run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    torch::Tensor inputs = batch.inputs;
    if (!run.fixed && cuda) inputs = inputs.pin_memory();
    TrainStep(network, sgd,
              {inputs.to(run.device, /*non_blocking=*/true), targets});
    profile.Step();
  }
}

}  // namespace

extern const Pattern kPinOnMainThread = {
    .rule = "pin-on-main-thread",
    .habit = "pins every batch on the training thread",
    .fix = "pinned buffers that are reused",
    .train = &TrainPinOnMainThread,
    .needs_gpu = true};

}  // namespace gallery
