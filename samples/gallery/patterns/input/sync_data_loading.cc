// sync-data-loading: by default LibTorch's DataLoader has no workers, so the
// training thread makes every batch while the step waits.
// Fix: DataLoaderOptions().workers(1).
#include <stepscope/batches.h>

#include <cmath>

#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

constexpr int64_t kMadeBatch = 64, kPixels = 1024;

// Samples that take some work to make, like decoding and cropping.
class Pictures : public torch::data::datasets::Dataset<Pictures> {
 public:
  explicit Pictures(size_t count) : count_(count) {}
  torch::data::Example<> get(size_t index) override {
    torch::Tensor picture = torch::empty({kPixels});
    float* pixel = picture.data_ptr<float>();
    for (int64_t i = 0; i < kPixels; ++i) {
      double value = static_cast<double>(index) + 1e-3 * static_cast<double>(i);
      for (int round = 0; round < 5; ++round) value = std::sin(value) + 1;
      pixel[i] = static_cast<float>(value);
    }
    return {picture, torch::zeros({10})};
  }
  std::optional<size_t> size() const override { return count_; }

 private:
  size_t count_;
};

void TrainSyncDataLoading(const Run& run) {
  torch::nn::Sequential network = Mlp({kPixels, 1024, 1024, 10}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  auto loader =
      torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
          Pictures(kMadeBatch * Run::kSteps)
              .map(torch::data::transforms::Stack<>()),
          torch::data::DataLoaderOptions(kMadeBatch)
              .workers(run.fixed ? 1 : 0));

  torch::set_num_threads(1);
  stepscope::Profile profile(run.options());
  for (auto& batch : stepscope::Batches(*loader, "train")) {
    TrainStep(network, sgd, {batch.data, batch.target});
    profile.Step();
  }
}

}  // namespace

extern const Pattern kSyncDataLoading = {
    .rule = "sync-data-loading",
    .habit = "makes batches on the training thread",
    .fix = "DataLoaderOptions().workers(1)",
    .train = &TrainSyncDataLoading,
    .cores = 2,
    .also = {{"cores-idle",
              "without a worker one of the two cores has nothing to do"}}};

}  // namespace gallery
