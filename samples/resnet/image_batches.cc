#include "image_batches.h"

#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "data/transforms.h"

namespace resnet {

Batch ImageBatches::get_batch(std::vector<size_t> draws) {
  int64_t count = static_cast<int64_t>(draws.size());
  int side = options_.side;
  if (options_.variable_sizes) {
    // Depends only on the batch's first draw, so that it is the same for any
    // number of workers. It uses the inverted seed, because the crops below use
    // the seed itself.
    Random random(~options_.seed, draws.front());
    side = DrawSide(side, random);
  }
  auto type = options_.bytes ? torch::kUInt8 : torch::kFloat;
  Batch batch{
      torch::empty({count, 3, side, side},
                   torch::TensorOptions(type).pinned_memory(options_.pinned)),
      torch::empty(
          {count},
          torch::TensorOptions(torch::kInt64).pinned_memory(options_.pinned))};
  size_t pixels = static_cast<size_t>(3 * side) * static_cast<size_t>(side);
  std::vector<uint8_t> planes(pixels);
  Image image;
  for (int64_t i = 0; i < count; ++i) {
    size_t draw = draws[static_cast<size_t>(i)];
    int label = 0;
    absl::Status status = source_->Read(
        static_cast<int64_t>(draw % static_cast<size_t>(source_->size())),
        &image, &label);
    // The loader passes an exception of a worker on to the training thread.
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
    batch.labels.data_ptr<int64_t>()[i] = label;

    Random random(options_.seed, draw);
    bool photograph = source_->framing() == Framing::kRandomResizedCrop;
    Box box{0, 0, image.width, image.height};
    if (photograph && options_.augment) {
      box = RandomResizedCrop(image.width, image.height, random);
    } else if (photograph) {
      box = CentralCrop(image.width, image.height);
    }
    bool flip = options_.augment && random.Uniform() < 0.5;
    if (options_.bytes) {
      uint8_t* out = batch.images.data_ptr<uint8_t>() + i * pixels;
      ResizeCrop(image, box, side, flip, {out, pixels});
    } else {
      float* out = batch.images.data_ptr<float>() + i * pixels;
      ResizeCrop(image, box, side, flip, planes);
      Normalize(planes, {out, pixels});
    }
  }
  return batch;
}

// The loader calls this at the start of each pass.
void DrawSampler::reset(std::optional<size_t> new_count) {
  count_ = new_count.value_or(count_);
  drawn_ = 0;
}

void DrawSampler::Shuffle(size_t epoch) {
  order_.resize(size_);
  std::iota(order_.begin(), order_.end(), size_t{0});
  order_epoch_ = epoch;
  if (!shuffle_) return;
  Random random(seed_, epoch);
  // Fisher-Yates with our own generator, because std::shuffle gives a different
  // order with each standard library.
  for (size_t i = size_; i > 1; --i) {
    std::swap(
        order_[i - 1],
        order_[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
  }
}

std::optional<std::vector<size_t>> DrawSampler::next(size_t batch_size) {
  if (drawn_ >= count_) return std::nullopt;
  std::vector<size_t> draws;
  for (; draws.size() < batch_size && drawn_ < count_; ++drawn_) {
    size_t epoch = drawn_ / size_;
    if (order_.empty() || epoch != order_epoch_) Shuffle(epoch);
    // Draws are numbered over all epochs, so that a picture gets a new crop in
    // each epoch.
    draws.push_back(epoch * size_ + order_[drawn_ % size_]);
  }
  return draws;
}

void DrawSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("drawn", torch::tensor(static_cast<int64_t>(drawn_)));
}

void DrawSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor drawn;
  archive.read("drawn", drawn);
  drawn_ = static_cast<size_t>(drawn.item<int64_t>());
}

std::unique_ptr<Loader> MakeLoader(std::shared_ptr<const ImageSource> source,
                                   const BatchOptions& options, size_t batch,
                                   size_t batches, size_t workers) {
  DrawSampler sampler(static_cast<size_t>(source->size()), batch * batches,
                      /*shuffle=*/options.augment, options.seed);
  return std::make_unique<Loader>(
      ImageBatches(std::move(source), options), std::move(sampler),
      torch::data::DataLoaderOptions(batch).workers(workers));
}

}  // namespace resnet
