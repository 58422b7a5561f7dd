// unfused-pointwise: a GELU written as six ops reads and writes the whole
// tensor six times.
// Fix: the op that does it in one kernel (or a compiled module).
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

torch::Tensor Gelu(const torch::Tensor& x) {
  return 0.5 * x * (1 + torch::tanh(0.79788456 * (x + 0.044715 * x * x * x)));
}

void TrainUnfusedPointwise(const Run& run) {
  torch::Tensor x = torch::randn({4096, 8192}, run.device).requires_grad_();

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    torch::Tensor y = run.fixed ? torch::gelu(x, "tanh") : Gelu(x);
    y.sum().backward();
    x.mutable_grad().reset();
    profile.Step();
  }
}

}  // namespace

extern const Pattern kUnfusedPointwise = {.rule = "unfused-pointwise",
                                          .habit = "writes out a GELU in ops",
                                          .fix = "torch::gelu",
                                          .train = &TrainUnfusedPointwise,
                                          .needs_gpu = true};

}  // namespace gallery
