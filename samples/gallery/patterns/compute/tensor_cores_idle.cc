// tensor-cores-idle: products in float32 leave the Tensor Cores unused.
// Fix: autocast to bfloat16.
#include <ATen/autocast_mode.h>

#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainTensorCoresIdle(const Run& run) {
  torch::nn::Sequential network = Mlp({4096, 4096, 4096}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(4096, 4096, 4096, run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    torch::Tensor output;
    if (run.fixed) {
      at::autocast::set_autocast_dtype(run.device.type(), at::kBFloat16);
      at::autocast::set_autocast_enabled(run.device.type(), true);
      output = network->forward(batch.inputs);
      at::autocast::set_autocast_enabled(run.device.type(), false);
      at::autocast::clear_cache();
    } else {
      output = network->forward(batch.inputs);
    }
    torch::mse_loss(output.to(torch::kFloat), batch.targets).backward();
    sgd.step();
    sgd.zero_grad();
    profile.Step();
  }
}

}  // namespace

extern const Pattern kTensorCoresIdle = {
    .rule = "tensor-cores-idle",
    .habit = "multiplies in float32",
    .fix = "autocast to bfloat16",
    .train = &TrainTensorCoresIdle,
    .needs_gpu = true,
    .also = {{"tf32-off", "TF32 would be the smaller step"},
             {"fp8-candidate", "16 bits are not the end", /*when_fixed=*/true},
             {"unfused-pointwise", "casts and the loss", /*when_fixed=*/true}}};

}  // namespace gallery
