#include "train.h"

#include <stepscope/batches.h>
#include <stepscope/profile.h>
#include <stepscope/range.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "device.h"
#include "image_batches.h"
#include "learner.h"
#include "precision.h"
#include "step_graph.h"

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
          .variable_sizes = options.variable_sizes && train,
          .augment = train,
          .bytes = options.uint8,
          .pinned = options.pinned,
          .seed = options.seed};
}

std::string ThreePlaces(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.3f", value);
  return text;
}

double Validate(Learner& learner, Loader& loader) {
  stepscope::PhaseRange phase(stepscope::Phase::kValidate);
  torch::Tensor sum;
  int64_t count = 0;
  for (Batch& batch : stepscope::Batches(loader, "validate")) {
    torch::Tensor loss = learner.Validate(batch);
    // Summed on the device and read once, after the loop, because reading each
    // loss would wait for each batch.
    sum = sum.defined() ? sum + loss : loss;
    ++count;
  }
  return sum.item<double>() / static_cast<double>(count);
}

struct Loaders {
  std::unique_ptr<Loader> train;
  std::unique_ptr<Loader> validate;  // null if there is no validation
};

Loaders MakeLoaders(const Options& options, Sources sources) {
  size_t batch = static_cast<size_t>(options.batch);
  size_t workers = static_cast<size_t>(options.workers);
  // LibTorch's loader works two batches per worker ahead. With this many extra
  // batches, workers have as much to do at the end as in a long run.
  const size_t batches = static_cast<size_t>(options.steps) + 2 * workers;
  Loaders loaders;
  loaders.train =
      MakeLoader(std::move(sources.train), MakeBatchOptions(options, true),
                 batch, batches, workers);
  if (options.validate_every > 0) {
    loaders.validate = MakeLoader(
        std::move(sources.validate), MakeBatchOptions(options, false), batch,
        static_cast<size_t>(options.validate_batches), workers);
  }
  return loaders;
}

// Writes the weights inside the loop, which waits for the disk.
void Save(Learner& learner, const std::string& log_dir) {
  stepscope::UserRange range("save checkpoint");
  std::filesystem::create_directories(log_dir);
  torch::save(learner.model(), log_dir + "/checkpoint.pt");
}

bool Due(int every, int done) { return every > 0 && done % every == 0; }

// REQUIRES: at least one step.
StepTimes RunSteps(const Options& options, torch::Device device,
                   std::unique_ptr<CapturedWork> graph, Sources sources,
                   Progress& progress) {
  int classes = std::max(options.classes, sources.train->classes());
  // Call this first, so that everything allocated or started below uses that
  // stream.
  if (graph) StepGraph::UseSideStream(device);
  Learner learner(options, classes, device, std::move(graph));
  Loaders loaders = MakeLoaders(options, std::move(sources));

  StepTimes times{{}, options.warm_steps, options.batch};
  std::optional<stepscope::Profile> profile;
  if (options.profile) profile.emplace(MakeProfileOptions(options));
  int done = 0;
  double sum_of_losses = 0;
  Clock::time_point begin = Clock::now();
  for (Batch& batch : stepscope::Batches(*loaders.train, "train")) {
    torch::Tensor loss = learner.Step(batch);
    ++done;
    if (options.item_every_step) sum_of_losses += loss.item<double>();
    // Read the loss only sometimes, because reading makes the host wait for the
    // GPU.
    std::optional<double> seen;
    if (done % options.log_every == 0 || done == options.steps) {
      seen = times.loss = loss.item<double>();
    }
    if (Due(options.checkpoint_every, done)) Save(learner, options.log_dir);
    if (Due(options.validate_every, done)) {
      progress.Say("step " + std::to_string(done) + ": validation loss " +
                   ThreePlaces(Validate(learner, *loaders.validate)));
    }
    // Before the clock is read, so that the times include the time that the
    // profiler takes.
    if (profile) profile->Step();

    Clock::time_point end = Clock::now();
    double step_ms =
        std::chrono::duration<double, std::milli>(end - begin).count();
    times.step_ms.push_back(step_ms);
    progress.Step(done, step_ms, seen);
    begin = end;
    // The loader has more batches than steps (MakeLoaders).
    if (done == options.steps) break;
  }
  progress.Finish();
  if (options.item_every_step) {
    progress.Say("mean loss of all steps " + ThreePlaces(sum_of_losses / done));
  }
  return times;
}

}  // namespace

absl::StatusOr<StepTimes> Train(const Options& options, Sources sources,
                                Progress& progress) {
  absl::StatusOr<torch::Device> device = OpenDevice(options.device);
  if (!device.ok()) return device.status();
  Configure(options);
  if (options.fp16) {
    if (absl::Status s = CheckHalfWorks(*device); !s.ok()) return s;
    if (device->is_cpu()) {
      progress.Say(
          "float16 on a CPU shows what it computes, not how fast a GPU is: "
          "LibTorch has no fast convolutions for it here");
    }
  }
  std::unique_ptr<CapturedWork> graph;
  if (options.cuda_graph) {
    absl::StatusOr<std::unique_ptr<CapturedWork>> made = MakeCudaGraph();
    if (!made.ok()) return made.status();
    graph = *std::move(made);
  }
  try {
    return RunSteps(options, *device, std::move(graph), std::move(sources),
                    progress);
  } catch (const c10::Error& error) {
    return absl::InternalError(std::string("training stopped: ") +
                               error.what_without_backtrace());
  } catch (const std::exception& error) {
    return absl::InternalError(std::string("training stopped: ") +
                               error.what());
  }
}

}  // namespace resnet
