// h2d-blocking: a few numbers are uploaded in the middle of the forward pass.
// Each upload waits until the GPU has done all work launched before it.
// Fix: pin the numbers and copy with non_blocking.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

constexpr int kBlocks = 10;

void TrainH2dBlocking(const Run& run) {
  std::vector<torch::nn::Sequential> blocks;
  std::vector<torch::Tensor> parameters, scales;
  for (int i = 0; i < kBlocks; ++i) {
    blocks.push_back(Mlp({256, 256, 256, 256, 256}, run.device));
    for (torch::Tensor& p : blocks.back()->parameters())
      parameters.push_back(p);
    torch::Tensor scale = torch::ones({256});
    if (run.fixed && run.device.is_cuda()) scale = scale.pin_memory();
    scales.push_back(scale);
  }
  torch::optim::SGD sgd(parameters, 0.01);
  const Batch batch = MakeBatch(4096, 256, 256, run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    torch::Tensor x = batch.inputs;
    for (int i = 0; i < kBlocks; ++i) {
      x = blocks[i]->forward(x) *
          scales[i].to(run.device, /*non_blocking=*/run.fixed);
    }
    torch::mse_loss(x, batch.targets).backward();
    sgd.step();
    sgd.zero_grad();
    profile.Step();
  }
}

}  // namespace

extern const Pattern kH2dBlocking = {
    .rule = "h2d-blocking",
    .habit = "small uploads in the middle of the step",
    .fix = "pin them, and non_blocking",
    .train = &TrainH2dBlocking,
    .needs_gpu = true};

}  // namespace gallery
