// tf32-off: float32 products at full precision, although TF32 is eight times
// as fast and 10 bits of mantissa are enough for most training.
// Fix: setFloat32MatmulPrecision("high").
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainTf32Off(const Run& run) {
  at::globalContext().setFloat32MatmulPrecision(run.fixed ? "high" : "highest");
  torch::nn::Sequential network = Mlp({2048, 2048, 2048}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(2048, 2048, 2048, run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    TrainStep(network, sgd, batch);
    profile.Step();
  }
}

}  // namespace

extern const Pattern kTf32Off = {
    .rule = "tf32-off",
    .habit = "multiplies in full float32",
    .fix = "setFloat32MatmulPrecision(\"high\")",
    .train = &TrainTf32Off,
    .needs_gpu = true,
    .also = {{"tensor-cores-idle",
              "16-bit types would be faster still, and that finding supersedes "
              "this one",
              /*when_fixed=*/true},
             {"launch-bound", "kernels of 0.1 ms, launched by a slow host",
              /*when_fixed=*/true}}};

}  // namespace gallery
