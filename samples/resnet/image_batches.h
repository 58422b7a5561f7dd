// Pictures in the form that a LibTorch DataLoader needs: a dataset that makes
// whole batches, a sampler for their order, and a loader of both.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/image_source.h"

namespace resnet {

struct Batch {
  torch::Tensor images;  // [N, 3, side, side]; float normalised, or bytes
  torch::Tensor labels;  // [N], int64
};

struct BatchOptions {
  int side = 32;
  bool variable_sizes = false;  // each batch has another side
  bool augment = true;          // random crops and mirroring
  bool bytes = false;   // leave pictures as bytes, for the device to normalise
  bool pinned = false;  // REQUIRES: CUDA
  uint64_t seed = 1;
};

// Decodes, crops and collates. Copies share the source; each worker has a copy.
// A draw is a picture's number plus the source's size for each earlier epoch.
// The draw alone decides the crop, whichever worker makes the batch. get_batch
// throws std::runtime_error if the source fails, because the loader then passes
// the error from its worker to the loop.
class ImageBatches
    : public torch::data::datasets::BatchDataset<ImageBatches, Batch,
                                                 std::vector<size_t>> {
 public:
  ImageBatches(std::shared_ptr<const ImageSource> source,
               const BatchOptions& options)
      : source_(std::move(source)), options_(options) {}

  Batch get_batch(std::vector<size_t> draws) override;
  std::optional<size_t> size() const override {
    return static_cast<size_t>(source_->size());
  }

 private:
  std::shared_ptr<const ImageSource> source_;
  BatchOptions options_;
};

// Gives `count` draws, epoch after epoch without a pause. Each epoch has its
// own order, or the order of the source if not shuffled. reset() starts again.
class DrawSampler : public torch::data::samplers::Sampler<> {
 public:
  DrawSampler(size_t size, size_t count, bool shuffle, uint64_t seed)
      : size_(size), count_(count), shuffle_(shuffle), seed_(seed) {}

  void reset(std::optional<size_t> new_count = std::nullopt) override;
  std::optional<std::vector<size_t>> next(size_t batch_size) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void Shuffle(size_t epoch);

  size_t size_;
  size_t count_;
  bool shuffle_;
  uint64_t seed_;
  size_t drawn_ = 0;
  size_t order_epoch_ = 0;
  std::vector<size_t> order_;  // of the epoch `order_epoch_`
};

using Loader = torch::data::StatelessDataLoader<ImageBatches, DrawSampler>;

// Makes a loader of `batches` batches of `batch` pictures. Batches come in the
// sampler's order, whatever the number of workers.
std::unique_ptr<Loader> MakeLoader(std::shared_ptr<const ImageSource> source,
                                   const BatchOptions& options, size_t batch,
                                   size_t batches, size_t workers);

}  // namespace resnet
