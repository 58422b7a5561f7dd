// host-created-tensor: noise is drawn on the host and then uploaded.
// Fix: draw it on the device.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainHostCreatedTensor(const Run& run) {
  torch::nn::Sequential network = Mlp({1024, 1024, 1024}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  Batch batch = MakeBatch(1024, 1024, 1024, run.device);
  const torch::Tensor clean = batch.inputs;

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    torch::Tensor noise = run.fixed ? torch::randn({1024, 1024}, run.device)
                                    : torch::randn({1024, 1024}).to(run.device);
    batch.inputs = clean + 0.1 * noise;
    TrainStep(network, sgd, batch);
    profile.Step();
  }
}

}  // namespace

extern const Pattern kHostCreatedTensor = {
    .rule = "host-created-tensor",
    .habit = "draws noise on the host",
    .fix = "torch::randn(sizes, device)",
    .train = &TrainHostCreatedTensor,
    .needs_gpu = true,
    .also = {{"h2d-pageable", "the upload of what was drawn"},
             {"h2d-blocking", "the same"}}};

}  // namespace gallery
