#include "data/jpeg_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "data/picture.h"
#include "temporary_folder.h"

namespace resnet::jpeg_files_test {
namespace {

using ::testing::HasSubstr;

std::vector<uint8_t> Encoded(const Image& image, int quality = 90) {
  absl::StatusOr<std::vector<uint8_t>> bytes = EncodeJpeg(image, quality);
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  return *bytes;
}

double MeanDifference(const Image& a, const Image& b) {
  double sum = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    sum += std::abs(a.pixels[i] - b.pixels[i]);
  }
  return sum / static_cast<double>(a.pixels.size());
}

TEST(JpegTest, APictureSurvivesTheRoundTrip) {
  Image image = MakePicture(3, 3, 125, 93);
  absl::StatusOr<Image> back = DecodeJpeg(Encoded(image), "it");
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->width, 125);
  EXPECT_EQ(back->height, 93);
  EXPECT_LT(MeanDifference(image, *back), 5);
  EXPECT_GT(MeanDifference(MakePicture(4, 4, 125, 93), *back), 20);
}

TEST(JpegTest, TheChannelsKeepTheirOrder) {
  Image red{16, 16, {}};
  for (int i = 0; i < 16 * 16; ++i) {
    red.pixels.insert(red.pixels.end(), {250, 10, 20});
  }
  absl::StatusOr<Image> back = DecodeJpeg(Encoded(red), "it");
  ASSERT_TRUE(back.ok());
  EXPECT_NEAR(back->pixels[0], 250, 8);
  EXPECT_NEAR(back->pixels[1], 10, 8);
  EXPECT_NEAR(back->pixels[2], 20, 8);
}

TEST(JpegTest, BytesThatAreNoJpegAreNamed) {
  std::vector<uint8_t> text = {'h', 'e', 'l', 'l', 'o'};
  absl::StatusOr<Image> image = DecodeJpeg(text, "dir/cat.jpg");
  ASSERT_TRUE(absl::IsDataLoss(image.status()));
  EXPECT_THAT(std::string(image.status().message()),
              HasSubstr("cannot decode dir/cat.jpg as JPEG: Not a JPEG file"));
  EXPECT_FALSE(DecodeJpeg({}, "dir/cat.jpg").ok());
}

TEST(JpegTest, AFileThatEndsEarlyIsAnErrorNotAGreyPicture) {
  std::vector<uint8_t> bytes = Encoded(MakePicture(1, 1, 200, 150));
  for (size_t part : {4u, 2u}) {
    std::span<const uint8_t> half(bytes.data(), bytes.size() * part / 5);
    absl::StatusOr<Image> image = DecodeJpeg(half, "half.jpg");
    ASSERT_TRUE(absl::IsDataLoss(image.status())) << part;
    EXPECT_THAT(std::string(image.status().message()), HasSubstr("half.jpg"));
  }
  EXPECT_TRUE(DecodeJpeg(bytes, "whole.jpg").ok());
}

TEST(JpegTest, DamagedBytesNeverCrash) {
  std::vector<uint8_t> bytes = Encoded(MakePicture(1, 1, 64, 48));
  int errors = 0;
  for (uint64_t round = 0; round < 300; ++round) {
    std::vector<uint8_t> damaged = bytes;
    Random random(5, round);
    for (int i = 0; i < 4; ++i) {
      // Leaves the size in the header alone, because a 4 GB image would test
      // nothing.
      int64_t at = 200 + random.Below(static_cast<int64_t>(bytes.size()) - 200);
      damaged[at] = static_cast<uint8_t>(random.Next());
    }
    absl::StatusOr<Image> image = DecodeJpeg(damaged, "it");
    if (!image.ok()) ++errors;
  }
  EXPECT_GT(errors, 0);
}

TEST(ReadFileTest, AMissingFileIsNamed) {
  TemporaryFolder folder;
  absl::StatusOr<std::vector<uint8_t>> bytes =
      ReadFile(folder.path() + "/none.jpg");
  ASSERT_TRUE(absl::IsNotFound(bytes.status()));
  EXPECT_THAT(std::string(bytes.status().message()),
              HasSubstr("/none.jpg: No such file"));
  EXPECT_FALSE(ReadFile(folder.path()).ok());
}

TEST(PictureTest, FollowsFromItsNumberAlone) {
  EXPECT_EQ(MakePicture(5, 2, 50, 40), MakePicture(5, 2, 50, 40));
  EXPECT_NE(MakePicture(5, 2, 50, 40), MakePicture(6, 2, 50, 40));
  EXPECT_NE(MakePicture(5, 2, 50, 40), MakePicture(5, 3, 50, 40));
  EXPECT_EQ(MakeNoise(1, 5, 8, 8), MakeNoise(1, 5, 8, 8));
  EXPECT_NE(MakeNoise(1, 5, 8, 8), MakeNoise(2, 5, 8, 8));
}

// Photographs of this size are saved in about this many bytes. A uniform image
// would be too fast to decode.
TEST(PictureTest, CompressesLikeAPhotograph) {
  for (int i = 0; i < 5; ++i) {
    size_t size = Encoded(MakePicture(i, i, 500, 375)).size();
    EXPECT_GT(size, 40'000u);
    EXPECT_LT(size, 160'000u);
  }
}

TEST(JpegCacheTest, TheFirstRunMakesTheFilesAndTheSecondKeepsThem) {
  TemporaryFolder folder;
  std::string dir = folder.path() + "/new/cache";
  JpegSet set{.count = 6, .width = 40, .height = 30, .kinds = 3};
  int calls = 0;
  auto count = [&](int) { ++calls; };
  absl::StatusOr<std::vector<std::string>> paths =
      MakeJpegFiles(dir, set, count);
  ASSERT_TRUE(paths.ok()) << paths.status().message();
  ASSERT_EQ(paths->size(), 6u);
  EXPECT_EQ(paths->at(4), dir + "/00004.jpg");
  absl::StatusOr<std::vector<uint8_t>> bytes = ReadFile(paths->at(4));
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(*bytes, Encoded(MakePicture(4, 1, 40, 30)));

  folder.Write("new/cache/00004.jpg", {1, 2, 3});
  std::filesystem::remove(paths->at(2));
  ASSERT_TRUE(MakeJpegFiles(dir, set, count).ok());
  EXPECT_EQ(ReadFile(paths->at(4))->size(), 3u);
  EXPECT_EQ(*ReadFile(paths->at(2)), Encoded(MakePicture(2, 2, 40, 30)));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    files += entry.is_regular_file();
  }
  EXPECT_EQ(files, 6);
}

TEST(JpegCacheTest, AFolderThatCannotBeMadeIsNamed) {
  TemporaryFolder folder;
  std::string file = folder.Write("file", {1});
  absl::StatusOr<std::vector<std::string>> paths =
      MakeJpegFiles(file + "/cache", {}, [](int) {});
  ASSERT_FALSE(paths.ok());
  EXPECT_THAT(std::string(paths.status().message()),
              HasSubstr(file + "/cache"));
  EXPECT_THAT(std::string(paths.status().message()), HasSubstr("--data-cache"));
}

TEST(JpegCacheTest, TheDefaultFolderFollowsTheEnvironment) {
  ::setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(DefaultJpegCache({}), "/caches/stepscope/jpeg-500x375");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(DefaultJpegCache({}), "/home/me/.cache/stepscope/jpeg-500x375");
  ::unsetenv("HOME");
  EXPECT_EQ(DefaultJpegCache({}), "runs/.data/jpeg-500x375");
}

}  // namespace
}  // namespace resnet::jpeg_files_test
