// loader-bound: one worker reads from slow storage. It sleeps most of the time,
// and so does the training thread, which waits for the worker.
// Fix: more workers, which wait for the storage in parallel.
#include <stepscope/batches.h>

#include <chrono>
#include <thread>

#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

constexpr int64_t kLoadedBatch = 64, kWide = 512;
constexpr std::chrono::milliseconds kStorage(40);  // until a batch has arrived

class SlowFiles : public torch::data::datasets::BatchDataset<SlowFiles, Batch> {
 public:
  explicit SlowFiles(size_t count) : count_(count) {}
  Batch get_batch(c10::ArrayRef<size_t>) override {
    std::this_thread::sleep_for(kStorage);
    return {torch::ones({kLoadedBatch, kWide}),
            torch::zeros({kLoadedBatch, kWide})};
  }
  std::optional<size_t> size() const override { return count_; }

 private:
  size_t count_;
};

void TrainLoaderBound(const Run& run) {
  torch::set_num_threads(1);
  torch::nn::Sequential network = Mlp({kWide, kWide, kWide}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const size_t workers = run.fixed ? 8 : 1;
  auto loader =
      torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
          SlowFiles(kLoadedBatch * Run::kSteps),
          torch::data::DataLoaderOptions(kLoadedBatch)
              .workers(workers)
              .max_jobs(2 * workers));

  stepscope::Profile profile(run.options());
  for (Batch& batch : stepscope::Batches(*loader, "train")) {
    TrainStep(network, sgd, batch);
    profile.Step();
  }
}

}  // namespace

extern const Pattern kLoaderBound = {
    .rule = "loader-bound",
    .habit = "one worker reads from slow storage",
    .fix = "DataLoaderOptions().workers(8)",
    .train = &TrainLoaderBound,
    .cores = 2};

}  // namespace gallery
