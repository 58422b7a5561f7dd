#include "image_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "data/picture.h"
#include "data/transforms.h"

namespace resnet::image_batches_test {
namespace {

using ::testing::HasSubstr;

// Makes images on the fly. The image numbered `bad` cannot be read.
class MadeSource final : public ImageSource {
 public:
  explicit MadeSource(int64_t size, int64_t bad = -1)
      : size_(size), bad_(bad) {}
  std::string description() const override { return "made pictures"; }
  int64_t size() const override { return size_; }
  int classes() const override { return 10; }
  Framing framing() const override { return Framing::kRandomResizedCrop; }
  absl::Status Read(int64_t index, Image* image, int* label) const override {
    if (index == bad_) return absl::DataLossError("cannot decode bad.jpg");
    *image = MakePicture(index, index, 60, 45);
    *label = static_cast<int>(index % 10);
    return absl::OkStatus();
  }

 private:
  int64_t size_;
  int64_t bad_;
};

BatchOptions Small() { return {.side = 16, .seed = 4}; }

std::vector<Batch> All(Loader& loader) {
  std::vector<Batch> batches;
  for (Batch& batch : loader) batches.push_back(batch);
  return batches;
}

std::vector<size_t> Draws(DrawSampler& sampler, size_t batch) {
  std::vector<size_t> draws;
  while (std::optional<std::vector<size_t>> some = sampler.next(batch)) {
    draws.insert(draws.end(), some->begin(), some->end());
  }
  return draws;
}

TEST(DrawSamplerTest, EachEpochHasEveryPictureOnceInAnOrderOfItsOwn) {
  DrawSampler sampler(10, 30, true, 1);
  std::vector<size_t> draws = Draws(sampler, 4);
  ASSERT_EQ(draws.size(), 30u);
  std::set<std::vector<size_t>> orders;
  for (size_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<size_t> order;
    for (size_t i = 0; i < 10; ++i) {
      ASSERT_EQ(draws[epoch * 10 + i] / 10, epoch);
      order.push_back(draws[epoch * 10 + i] % 10);
    }
    orders.insert(order);
    EXPECT_EQ(std::set<size_t>(order.begin(), order.end()).size(), 10u);
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST(DrawSamplerTest, ResettingBeginsTheSameOrderAgain) {
  DrawSampler sampler(7, 20, true, 1);
  std::vector<size_t> first = Draws(sampler, 3);
  EXPECT_EQ(sampler.next(3), std::nullopt);
  sampler.reset();
  EXPECT_EQ(Draws(sampler, 5), first);
  DrawSampler other(7, 20, true, 2);
  EXPECT_NE(Draws(other, 3), first);
}

TEST(DrawSamplerTest, UnshuffledDrawsLieInOrder) {
  DrawSampler sampler(3, 7, false, 1);
  EXPECT_EQ(Draws(sampler, 2), (std::vector<size_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(DrawSamplerTest, ASavedPositionIsContinued) {
  DrawSampler sampler(10, 30, true, 1);
  sampler.next(13);
  torch::serialize::OutputArchive out;
  sampler.save(out);
  std::stringstream file;
  out.save_to(file);
  torch::serialize::InputArchive in;
  in.load_from(file);
  DrawSampler restored(10, 30, true, 1);
  restored.load(in);
  EXPECT_EQ(Draws(restored, 4), Draws(sampler, 4));
}

TEST(ImageBatchesTest, ShapesTypesAndLabelsAreThoseOfTheSource) {
  ImageBatches images(std::make_shared<MadeSource>(20), Small());
  Batch batch = images.get_batch({3, 14, 25});
  EXPECT_EQ(batch.images.sizes(), (std::vector<int64_t>{3, 3, 16, 16}));
  EXPECT_EQ(batch.images.scalar_type(), torch::kFloat);
  EXPECT_TRUE(torch::equal(batch.labels, torch::tensor({3, 4, 5})));
}

TEST(ImageBatchesTest, ADrawDecidesItsCropAndEpochsDiffer) {
  ImageBatches images(std::make_shared<MadeSource>(20), Small());
  Batch first = images.get_batch({3, 23});
  Batch again = images.get_batch({23, 3});
  EXPECT_TRUE(torch::equal(first.images[0], again.images[1]));
  EXPECT_TRUE(torch::equal(first.images[1], again.images[0]));
  EXPECT_FALSE(torch::equal(first.images[0], first.images[1]));
}

TEST(ImageBatchesTest, ValidationSeesTheSameCropInEveryEpoch) {
  BatchOptions options = Small();
  options.augment = false;
  ImageBatches images(std::make_shared<MadeSource>(20), options);
  Batch batch = images.get_batch({3, 23});
  EXPECT_TRUE(torch::equal(batch.images[0], batch.images[1]));
}

TEST(ImageBatchesTest, BytesNormalisedLaterAreTheFloatsOfTheLoader) {
  BatchOptions options = Small();
  ImageBatches floats(std::make_shared<MadeSource>(20), options);
  options.bytes = true;
  ImageBatches bytes(std::make_shared<MadeSource>(20), options);
  Batch a = floats.get_batch({1, 2});
  Batch b = bytes.get_batch({1, 2});
  ASSERT_EQ(b.images.scalar_type(), torch::kByte);
  for (int c = 0; c < 3; ++c) {
    torch::Tensor normalised =
        (b.images.select(1, c).to(torch::kFloat) / 255 - kMean[c]) / kStd[c];
    EXPECT_TRUE(torch::allclose(a.images.select(1, c), normalised, 1e-4, 1e-5));
  }
}

TEST(LoaderTest, WorkersGiveTheSameBatchesInTheSameOrder) {
  auto source = std::make_shared<MadeSource>(10);
  std::vector<Batch> alone = All(*MakeLoader(source, Small(), 4, 5, 0));
  ASSERT_EQ(alone.size(), 5u);
  for (size_t workers : {1u, 3u}) {
    std::vector<Batch> helped =
        All(*MakeLoader(source, Small(), 4, 5, workers));
    ASSERT_EQ(helped.size(), 5u);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_TRUE(torch::equal(alone[i].images, helped[i].images)) << i;
      EXPECT_TRUE(torch::equal(alone[i].labels, helped[i].labels)) << i;
    }
  }
}

TEST(LoaderTest, ASecondPassGivesTheFirstAgain) {
  std::unique_ptr<Loader> loader =
      MakeLoader(std::make_shared<MadeSource>(10), Small(), 4, 2, 1);
  std::vector<Batch> first = All(*loader);
  std::vector<Batch> second = All(*loader);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_TRUE(torch::equal(first[1].images, second[1].images));
}

TEST(LoaderTest, ABadPictureReachesTheLoopWithItsName) {
  for (size_t workers : {0u, 2u}) {
    auto source = std::make_shared<MadeSource>(10, 6);
    std::unique_ptr<Loader> loader = MakeLoader(source, Small(), 4, 5, workers);
    try {
      All(*loader);
      FAIL() << "nothing was thrown with " << workers << " workers";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("cannot decode bad.jpg"));
    }
  }
}

TEST(ImageBatchesTest, VariableSizesFollowFromTheDrawsAlone) {
  auto sides = [](size_t workers) {
    std::vector<int64_t> all;
    BatchOptions options = {.side = 64, .variable_sizes = true, .seed = 4};
    std::unique_ptr<Loader> loader =
        MakeLoader(std::make_shared<MadeSource>(20), options, 2, 8, workers);
    for (const Batch& batch : All(*loader)) {
      EXPECT_EQ(batch.images.size(2), batch.images.size(3));
      all.push_back(batch.images.size(3));
    }
    return all;
  };
  std::vector<int64_t> alone = sides(0);
  EXPECT_EQ(alone, sides(2));
  EXPECT_GT(std::set<int64_t>(alone.begin(), alone.end()).size(), 1u);
}

}  // namespace
}  // namespace resnet::image_batches_test
