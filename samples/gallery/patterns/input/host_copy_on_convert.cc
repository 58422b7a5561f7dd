// host-copy-on-convert: the samples are kept as doubles, so every batch is
// copied, number by number, to make a float tensor.
// Fix: keep floats; from_blob() then shares their memory.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

constexpr int64_t kImages = 64, kLength = 64 * 1024;

void TrainHostCopyOnConvert(const Run& run) {
  torch::nn::Sequential network = Mlp({256, 10}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const torch::Tensor targets = torch::randn({kImages, 10}, run.device);
  std::vector<double> doubles(kImages * kLength, 0.5);
  std::vector<float> floats(kImages * kLength, 0.5F);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    torch::Tensor signals;
    if (run.fixed) {
      signals = torch::from_blob(floats.data(), {kImages, kLength});
    } else {
      signals = torch::from_blob(doubles.data(), {kImages, kLength},
                                 torch::dtype(torch::kDouble))
                    .to(torch::kFloat);
    }
    // The peak in each of 256 windows.
    torch::Tensor inputs = signals.view({kImages, 256, -1}).amax(2);
    TrainStep(network, sgd, {inputs.to(run.device), targets});
    profile.Step();
  }
}

}  // namespace

extern const Pattern kHostCopyOnConvert = {
    .rule = "host-copy-on-convert",
    .habit = "makes float tensors of doubles",
    .fix = "torch::from_blob over floats",
    .train = &TrainHostCopyOnConvert,
    .also = {
        {"fp64-compute", "reading the doubles is work in double precision"}}};

}  // namespace gallery
