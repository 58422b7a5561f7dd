#include "train.h"

#include <stepscope/batches.h>
#include <stepscope/profile.h>
#include <stepscope/range.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "device.h"
#include "image_batches.h"
#include "learner.h"

namespace resnet {
namespace {

using Clock = std::chrono::steady_clock;

stepscope::ProfileOptions MakeProfileOptions(const Options& options) {
  stepscope::ProfileOptions out;
  out.log_dir = options.log_dir;
  out.name = "resnet" + std::to_string(options.model);
  out.schedule = {options.skip_first, options.wait, options.warmup,
                  options.active, options.repeat};
  out.record_shapes = options.shapes;
  out.profile_memory = options.memory;
  out.with_stack = options.stack;
  return out;
}

BatchOptions MakeBatchOptions(const Options& options, bool train) {
  return {.side = options.side,
          .augment = train,
          .bytes = options.uint8,
          .pinned = options.pinned,
          .seed = options.seed};
}

double Validate(Learner& learner, Loader& loader) {
  stepscope::PhaseRange phase(stepscope::Phase::kValidate);
  torch::Tensor sum;
  int64_t count = 0;
  for (Batch& batch : stepscope::Batches(loader, "validate")) {
    torch::Tensor loss = learner.Validate(batch);
    sum = sum.defined() ? sum + loss : loss;
    ++count;
  }
  return sum.item<double>() / static_cast<double>(count);
}

// REQUIRES: at least one step.
StepTimes RunSteps(const Options& options, torch::Device device,
                   Sources sources, Progress& progress) {
  int classes = std::max(options.classes, sources.train->classes());
  size_t batch_size = static_cast<size_t>(options.batch);
  size_t workers = static_cast<size_t>(options.workers);
  Learner learner(options, classes, device);
  std::unique_ptr<Loader> loader =
      MakeLoader(std::move(sources.train), MakeBatchOptions(options, true),
                 batch_size, static_cast<size_t>(options.steps), workers);
  std::unique_ptr<Loader> validation_loader;
  if (options.validate_every > 0) {
    validation_loader = MakeLoader(
        std::move(sources.validate), MakeBatchOptions(options, false),
        batch_size, static_cast<size_t>(options.validate_batches), workers);
  }

  StepTimes times{{}, options.warm_steps, options.batch};
  std::optional<stepscope::Profile> profile;
  if (options.profile) profile.emplace(MakeProfileOptions(options));
  int done = 0;
  Clock::time_point begin = Clock::now();
  for (Batch& batch : stepscope::Batches(*loader, "train")) {
    torch::Tensor loss = learner.Step(batch);
    ++done;
    // Reading the loss makes a GPU's host wait for it, so it is done seldom.
    std::optional<double> seen;
    if (done % options.log_every == 0 || done == options.steps) {
      seen = loss.item<double>();
    }
    if (validation_loader && done % options.validate_every == 0) {
      double validation_loss = Validate(learner, *validation_loader);
      char text[64];
      std::snprintf(text, sizeof(text), "step %d: validation loss %.3f", done,
                    validation_loss);
      progress.Say(text);
    }
    if (profile) profile->Step();

    Clock::time_point end = Clock::now();
    double step_ms =
        std::chrono::duration<double, std::milli>(end - begin).count();
    times.step_ms.push_back(step_ms);
    progress.Step(done, step_ms, seen);
    begin = end;
  }
  progress.Finish();
  return times;
}

}  // namespace

absl::StatusOr<StepTimes> Train(const Options& options, Sources sources,
                                Progress& progress) {
  absl::StatusOr<torch::Device> device = OpenDevice(options.device);
  if (!device.ok()) return device.status();
  if (options.threads > 0) torch::set_num_threads(options.threads);
  try {
    return RunSteps(options, *device, std::move(sources), progress);
  } catch (const c10::Error& error) {
    return absl::InternalError(std::string("training stopped: ") +
                               error.what_without_backtrace());
  } catch (const std::exception& error) {
    return absl::InternalError(std::string("training stopped: ") +
                               error.what());
  }
}

}  // namespace resnet
