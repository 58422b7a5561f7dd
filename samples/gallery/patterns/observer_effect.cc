// observer-effect: shapes and every allocation are recorded in a loop of tiny
// ops, which takes about as long as the ops themselves.
// Fix: record only what is needed.
#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

void Train(const Run& run) {
  stepscope::ProfileOptions options = run.options();
  if (run.fixed) {
    options.record_shapes = false;
  } else {
    options.profile_memory = true;
  }
  stepscope::Profile profile(std::move(options));
  for (int step = 0; step < Run::kSteps; ++step) {
    torch::Tensor scratch;
    for (int op = 0; op < 10'000; ++op) scratch = torch::empty({8}, run.device);
    profile.Step();
  }
}

}  // namespace

extern const Pattern kObserverEffect = {
    .rule = "observer-effect",
    .habit = "records every allocation of tiny ops",
    .fix = "record_shapes and profile_memory off",
    .train = &Train,
    .also = {{"launch-bound", "a loop of tiny ops is that, too",
              /*when_fixed=*/true}}};

}  // namespace gallery
