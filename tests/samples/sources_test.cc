#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/image_source.h"
#include "data/jpeg_files.h"
#include "data/picture.h"
#include "temporary_folder.h"

namespace resnet::sources_test {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Sources> Open(const SourceRequest& request) {
  return OpenSources(request, [](const std::string&) {});
}

std::string Error(const SourceRequest& request) {
  absl::StatusOr<Sources> sources = Open(request);
  return sources.ok() ? "" : std::string(sources.status().message());
}

// Returns records whose label and first pixels identify them.
std::vector<uint8_t> Records(std::vector<uint8_t> labels) {
  std::vector<uint8_t> bytes;
  for (uint8_t label : labels) {
    bytes.push_back(label);
    for (int c = 0; c < 3; ++c) {
      for (int i = 0; i < 1024; ++i) {
        bytes.push_back(static_cast<uint8_t>(label * 10 + c + i % 7));
      }
    }
  }
  return bytes;
}

std::vector<uint8_t> Jpeg(int index) {
  return *EncodeJpeg(MakePicture(index, index, 24, 16), 90);
}

TEST(FakeCifarTest, TenThousandPicturesThatFollowFromTheSeed) {
  std::unique_ptr<ImageSource> a = MakeFakeCifar(1, 10);
  std::unique_ptr<ImageSource> b = MakeFakeCifar(1, 10);
  std::unique_ptr<ImageSource> other = MakeFakeCifar(2, 10);
  EXPECT_EQ(a->size(), 10'000);
  EXPECT_EQ(a->classes(), 10);
  std::vector<int> seen(10);
  for (int64_t i = 0; i < 1000; ++i) {
    Image image, again, different;
    int label = -1, label_again = -1, unused = -1;
    ASSERT_TRUE(a->Read(i, &image, &label).ok());
    ASSERT_TRUE(b->Read(i, &again, &label_again).ok());
    ASSERT_TRUE(other->Read(i, &different, &unused).ok());
    ASSERT_EQ(image, again);
    ASSERT_NE(image, different);
    ASSERT_EQ(label, label_again);
    ASSERT_EQ(image.pixels.size(), 32u * 32 * 3);
    ++seen.at(label);
  }
  for (int count : seen) EXPECT_NEAR(count, 100, 50);
}

TEST(Cifar10Test, BatchesAreReadInTheirOrderAndPlanesBecomePixels) {
  TemporaryFolder folder;
  folder.Write("data_batch_2.bin", Records({7}));
  folder.Write("data_batch_1.bin", Records({3, 9}));
  folder.Write("test_batch.bin", Records({5}));
  absl::StatusOr<Sources> sources = Open({.data = folder.path()});
  ASSERT_TRUE(sources.ok()) << sources.status().message();
  ASSERT_EQ(sources->train->size(), 3);
  EXPECT_EQ(sources->validate->size(), 1);
  EXPECT_EQ(sources->train->classes(), 10);
  std::vector<int> labels;
  for (int64_t i = 0; i < 3; ++i) {
    Image image;
    int label = -1;
    ASSERT_TRUE(sources->train->Read(i, &image, &label).ok());
    labels.push_back(label);
    ASSERT_EQ(image.width, 32);
    for (int pixel : {0, 1, 700}) {
      for (int c = 0; c < 3; ++c) {
        EXPECT_EQ(image.pixels[pixel * 3 + c],
                  static_cast<uint8_t>(label * 10 + c + pixel % 7));
      }
    }
  }
  EXPECT_EQ(labels, (std::vector<int>{3, 9, 7}));
}

TEST(Cifar10Test, AFileOfTheWrongSizeIsNamed) {
  TemporaryFolder folder;
  std::vector<uint8_t> bytes = Records({1});
  bytes.pop_back();
  folder.Write("data_batch_1.bin", bytes);
  EXPECT_THAT(
      Error({.data = folder.path()}),
      HasSubstr("data_batch_1.bin as CIFAR-10: its size of 3072 bytes"));
  folder.Write("data_batch_1.bin", {});
  EXPECT_THAT(Error({.data = folder.path()}), HasSubstr("its size of 0 bytes"));
}

TEST(Cifar10Test, ALabelAboveNineIsNamed) {
  TemporaryFolder folder;
  folder.Write("data_batch_1.bin", Records({9, 10}));
  EXPECT_THAT(Error({.data = folder.path()}),
              HasSubstr("the label at byte 3073 is 10"));
}

TEST(Cifar10Test, AMissingTestFileIsNamed) {
  TemporaryFolder folder;
  folder.Write("data_batch_1.bin", Records({1}));
  EXPECT_THAT(Error({.data = folder.path()}),
              HasSubstr("found no test_batch.bin in " + folder.path()));
}

TEST(JpegFolderTest, SubFoldersAreClassesInAlphabeticalOrder) {
  TemporaryFolder folder;
  folder.Write("dog/b.jpg", Jpeg(1));
  folder.Write("cat/a.JPEG", Jpeg(2));
  folder.Write("cat/notes.txt", {1});
  folder.Write("empty/notes.txt", {1});
  folder.Write("ant/c.jpeg", Jpeg(3));
  absl::StatusOr<Sources> sources = Open({.data = folder.path()});
  ASSERT_TRUE(sources.ok()) << sources.status().message();
  EXPECT_EQ(sources->train->classes(), 3);
  ASSERT_EQ(sources->train->size(), 3);
  int order[] = {3, 2, 1};
  for (int64_t i = 0; i < 3; ++i) {
    Image image;
    int label = -1;
    ASSERT_TRUE(sources->train->Read(i, &image, &label).ok());
    EXPECT_EQ(label, i);
    EXPECT_EQ(image, *DecodeJpeg(Jpeg(order[i]), "it"));
  }
}

TEST(JpegFolderTest, TrainAndValAreToldApartWhereTheyExist) {
  TemporaryFolder folder;
  folder.Write("train/a/1.jpg", Jpeg(1));
  folder.Write("train/b/2.jpg", Jpeg(2));
  folder.Write("val/a/3.jpg", Jpeg(3));
  absl::StatusOr<Sources> sources = Open({.data = folder.path()});
  ASSERT_TRUE(sources.ok()) << sources.status().message();
  EXPECT_EQ(sources->train->size(), 2);
  EXPECT_EQ(sources->validate->size(), 1);
}

TEST(JpegFolderTest, ADamagedFileIsNamedWhenItIsRead) {
  TemporaryFolder folder;
  std::string path = folder.Write("a/broken.jpg", {0xFF, 0xD8, 0xFF});
  absl::StatusOr<Sources> sources = Open({.data = folder.path()});
  ASSERT_TRUE(sources.ok());
  Image image;
  int label = -1;
  absl::Status status = sources->train->Read(0, &image, &label);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

TEST(OpenSourcesTest, AFolderWithNothingInItSaysWhatIsMissing) {
  TemporaryFolder folder;
  EXPECT_THAT(Error({.data = folder.path()}),
              HasSubstr("neither data_batch_*.bin nor sub-folders"));
  EXPECT_THAT(Error({.data = folder.path() + "/none"}),
              HasSubstr("neither jpeg, nor fakecifar, nor a folder"));
}

TEST(OpenSourcesTest, TooFewClassesAreRefused) {
  TemporaryFolder folder;
  folder.Write("cifar/data_batch_1.bin", Records({1}));
  folder.Write("cifar/test_batch.bin", Records({1}));
  folder.Write("jpeg/a/1.jpg", Jpeg(1));
  folder.Write("jpeg/b/1.jpg", Jpeg(1));
  folder.Write("jpeg/c/1.jpg", Jpeg(1));
  EXPECT_THAT(Error({.data = folder.path() + "/cifar", .classes = 9}),
              HasSubstr("--classes 9 is too few"));
  EXPECT_EQ(Error({.data = folder.path() + "/cifar", .classes = 10}), "");
  EXPECT_THAT(Error({.data = folder.path() + "/jpeg", .classes = 2}),
              HasSubstr("has 3 class folders"));
  EXPECT_EQ(
      Open({.data = folder.path() + "/jpeg", .classes = 5})->train->classes(),
      5);
}

TEST(OpenSourcesTest, FakeCifarHasOtherPicturesForValidation) {
  absl::StatusOr<Sources> sources = Open({.data = "fakecifar"});
  ASSERT_TRUE(sources.ok());
  EXPECT_EQ(sources->train->classes(), 10);
  Image train, validate;
  int label = -1;
  ASSERT_TRUE(sources->train->Read(0, &train, &label).ok());
  ASSERT_TRUE(sources->validate->Read(0, &validate, &label).ok());
  EXPECT_NE(train, validate);
}

}  // namespace
}  // namespace resnet::sources_test
