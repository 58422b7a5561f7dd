// allocator-churn: the cache of device memory is emptied in every step. The
// next step then requests memory from the driver again, and cudaFree waits for
// the GPU.
// Fix: do not empty the cache.
#include <ATen/DeviceAccelerator.h>

#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainAllocatorChurn(const Run& run) {
  torch::nn::Sequential network = Mlp({1024, 1024, 1024}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(8192, 1024, 1024, run.device);

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    TrainStep(network, sgd, batch);
    if (!run.fixed && run.device.is_cuda()) at::accelerator::emptyCache();
    profile.Step();
  }
}

}  // namespace

extern const Pattern kAllocatorChurn = {
    .rule = "allocator-churn",
    .habit = "empties the cache in every step",
    .fix = "leave it alone",
    .train = &TrainAllocatorChurn,
    .needs_gpu = true,
    .also = {{"tensor-cores-idle", "float32", /*when_fixed=*/true}}};

}  // namespace gallery
