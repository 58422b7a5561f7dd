// fp64-compute: the inputs are multiplied by a whitening matrix that was
// computed in double precision, so the product for every batch uses double
// precision.
// Fix: cast the matrix to float once, before the loop.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainFp64Compute(const Run& run) {
  torch::nn::Sequential network = Mlp({512, 128}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  Batch batch = MakeBatch(256, 512, 128, run.device);

  torch::Tensor whitening =
      torch::eye(512, torch::dtype(torch::kDouble).device(run.device));
  torch::Tensor raw = batch.inputs.to(torch::kDouble);
  if (run.fixed) {
    whitening = whitening.to(torch::kFloat);
    raw = batch.inputs;
  }

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    batch.inputs = raw.matmul(whitening).to(torch::kFloat);
    TrainStep(network, sgd, batch);
    profile.Step();
  }
}

}  // namespace

extern const Pattern kFp64Compute = {
    .rule = "fp64-compute",
    .habit = "multiplies every batch by a double matrix",
    .fix = "float where the data is made",
    .train = &TrainFp64Compute};

}  // namespace gallery
