// observer-effect: the step fills a table of thousands of small cells, and
// profile_memory records each allocation and each release. Recording takes
// longer than the allocations themselves, so the recorded step differs from the
// real one.
// Fix: record only what is needed.
#include <c10/core/CPUAllocator.h>

#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

constexpr int kCells = 3'500;

// Its cells come one by one from the allocator, not from ops.
class Table {
 public:
  explicit Table(int cells) {
    for (int i = 0; i < cells; ++i) {
      cells_.push_back(c10::GetCPUAllocator()->allocate(256));
    }
  }

 private:
  std::vector<c10::DataPtr> cells_;
};

void TrainObserverEffect(const Run& run) {
  torch::nn::Sequential network = Mlp({256, 256, 256}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(64, 256, 256, run.device);

  stepscope::ProfileOptions options = run.options();
  options.schedule.wait = 12;
  options.record_shapes = options.profile_memory = !run.fixed;
  // The first steps are slow and do not represent the others.
  for (int step = 0; step < 20; ++step) TrainStep(network, sgd, batch);
  stepscope::Profile profile(std::move(options));
  for (int step = 0; step < 15 + run.active; ++step) {
    const Table counts(kCells);
    TrainStep(network, sgd, batch);
    profile.Step();
  }
}

}  // namespace

extern const Pattern kObserverEffect = {
    .rule = "observer-effect",
    .habit = "records the allocation of every small cell",
    .fix = "record_shapes and profile_memory off",
    .train = &TrainObserverEffect,
    .active = 4};

}  // namespace gallery
