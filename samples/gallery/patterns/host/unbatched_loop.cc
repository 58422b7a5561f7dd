// unbatched-loop: the samples of a batch go through the network one by one.
// Each op then does very little, and the step is mostly overhead of ops.
// Fix: one forward pass for the whole batch.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

constexpr int64_t kBatch = 64;

void TrainUnbatchedLoop(const Run& run) {
  torch::nn::Sequential network = Mlp({64, 64, 10}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(kBatch, 64, 10, run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    torch::Tensor outputs;
    if (run.fixed) {
      outputs = network->forward(batch.inputs);
    } else {
      std::vector<torch::Tensor> each;
      for (int64_t i = 0; i < kBatch; ++i) {
        each.push_back(network->forward(batch.inputs[i]));
      }
      outputs = torch::stack(each);
    }
    torch::mse_loss(outputs, batch.targets).backward();
    sgd.step();
    sgd.zero_grad();
    profile.Step();
  }
}

}  // namespace

extern const Pattern kUnbatchedLoop = {
    .rule = "unbatched-loop",
    .habit = "feeds samples one by one",
    .fix = "the whole batch at once",
    .train = &TrainUnbatchedLoop,
    .active = 4,
    .also = {{"observer-effect",
              "recording thousands of tiny ops per step takes noticeable time; "
              "so does recording anything in the fixed step of 0.1 ms",
              /*when_fixed=*/true}}};

}  // namespace gallery
