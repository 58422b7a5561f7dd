// capture-incomplete: the window records more than its buffers can hold, so the
// newest events are dropped. Nothing can be said about the missing events.
// Fix: the default of max_buffer_bytes, or fewer recorded steps.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void TrainCaptureIncomplete(const Run& run) {
  torch::nn::Sequential network = Mlp({512, 512, 512}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(256, 512, 512, run.device);

  stepscope::ProfileOptions options = run.options();
  if (!run.fixed) options.max_buffer_bytes = 64 << 10;
  stepscope::Profile profile(std::move(options));
  for (int step = 0; step < Run::kSteps; ++step) {
    for (int part = 0; part < 3; ++part) TrainStep(network, sgd, batch);
    profile.Step();
  }
}

}  // namespace

extern const Pattern kCaptureIncomplete = {
    .rule = "capture-incomplete",
    .habit = "records more than the buffers hold",
    .fix = "a larger max_buffer_bytes",
    .train = &TrainCaptureIncomplete};

}  // namespace gallery
