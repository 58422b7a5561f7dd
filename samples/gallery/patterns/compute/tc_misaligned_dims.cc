// tc-misaligned-dims: with a vocabulary of 30,523 words, Tensor Core kernels
// cannot load rows in whole vectors.
// Fix: pad it to a multiple of 64.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainTcMisalignedDims(const Run& run) {
  const int64_t words = run.fixed ? 30'528 : 30'523;
  const auto bf16 = torch::dtype(torch::kBFloat16).device(run.device);
  torch::Tensor hidden = torch::randn({2048, 1024}, bf16);
  torch::Tensor same = torch::randn({1024, 1024}, bf16).requires_grad_();
  torch::Tensor head = torch::randn({1024, words}, bf16).requires_grad_();
  torch::optim::SGD sgd(std::vector<torch::Tensor>{same, head}, 0.01);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    hidden.matmul(same).matmul(head).mean().backward();
    sgd.step();
    sgd.zero_grad();
    profile.Step();
  }
}

}  // namespace

extern const Pattern kTcMisalignedDims = {
    .rule = "tc-misaligned-dims",
    .habit = "a vocabulary of 30,523 words",
    .fix = "pad it to 30,528",
    .train = &TrainTcMisalignedDims,
    .needs_gpu = true};

}  // namespace gallery
