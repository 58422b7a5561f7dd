#include "data/transforms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "data/picture.h"

namespace resnet::transforms_test {
namespace {

constexpr int kPixels = 3;

Image Flat(int width, int height, uint8_t value) {
  Image image{width, height, {}};
  image.pixels.assign(static_cast<size_t>(width) * height * 3, value);
  return image;
}

std::vector<uint8_t> Resized(const Image& image, const Box& box, int side,
                             bool flip = false) {
  std::vector<uint8_t> planes(static_cast<size_t>(side) * side * kPixels);
  ResizeCrop(image, box, side, flip, planes);
  return planes;
}

TEST(RandomTest, TheSameSeedAndStreamGiveTheSameNumbers) {
  Random a(1, 2), b(1, 2), other_seed(2, 2), other_stream(1, 3);
  uint64_t first = a.Next();
  EXPECT_EQ(first, b.Next());
  EXPECT_NE(first, other_seed.Next());
  EXPECT_NE(first, other_stream.Next());
}

TEST(RandomTest, NumbersStayInTheirRangeAndFillIt) {
  Random random(7, 7);
  std::vector<int> seen(10);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    int64_t number = random.Below(10);
    ASSERT_GE(number, 0);
    ASSERT_LT(number, 10);
    ++seen[number];
    double uniform = random.Uniform(-1, 3);
    ASSERT_GE(uniform, -1);
    ASSERT_LT(uniform, 3);
    sum += uniform;
  }
  for (int count : seen) EXPECT_NEAR(count, 1000, 150);
  EXPECT_NEAR(sum / 10000, 1, 0.05);
}

TEST(RandomResizedCropTest, StaysInsideThePictureAndItsShapes) {
  double smallest = 1, largest = 0;
  for (uint64_t draw = 0; draw < 2000; ++draw) {
    Random random(3, draw);
    Box box = RandomResizedCrop(500, 375, random);
    ASSERT_GE(box.x, 0);
    ASSERT_GE(box.y, 0);
    ASSERT_LE(box.x + box.width, 500);
    ASSERT_LE(box.y + box.height, 375);
    double ratio = static_cast<double>(box.width) / box.height;
    ASSERT_GT(ratio, 0.74);
    ASSERT_LT(ratio, 1.35);
    double area = box.width * box.height / (500.0 * 375.0);
    smallest = std::min(smallest, area);
    largest = std::max(largest, area);
  }
  EXPECT_NEAR(smallest, 0.08, 0.01);
  EXPECT_GT(largest, 0.9);
}

TEST(RandomResizedCropTest, AStripGetsTheLargestCentralPart) {
  Random random(1, 1);
  EXPECT_EQ(RandomResizedCrop(1000, 9, random), (Box{494, 0, 12, 9}));
}

TEST(RandomResizedCropTest, ASinglePixelIsItsOwnCrop) {
  Random random(1, 1);
  EXPECT_EQ(RandomResizedCrop(1, 1, random), (Box{0, 0, 1, 1}));
}

TEST(CentralCropTest, TakesSevenEighthsOfTheShorterSide) {
  EXPECT_EQ(CentralCrop(500, 375), (Box{86, 23, 328, 328}));
  EXPECT_EQ(CentralCrop(1, 1), (Box{0, 0, 1, 1}));
}

TEST(ResizeCropTest, TheSameSizeChangesNothingButTheLayout) {
  Image image = MakeNoise(1, 1, 8, 8);
  std::vector<uint8_t> planes = Resized(image, {0, 0, 8, 8}, 8);
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 8; ++x) {
      for (int c = 0; c < 3; ++c) {
        ASSERT_EQ(planes[c * 64 + y * 8 + x], image.Row(y)[x * 3 + c]);
      }
    }
  }
}

TEST(ResizeCropTest, FlippingMirrorsEachRow) {
  Image image = MakeNoise(1, 2, 8, 8);
  std::vector<uint8_t> plain = Resized(image, {0, 0, 8, 8}, 8);
  std::vector<uint8_t> flipped = Resized(image, {0, 0, 8, 8}, 8, true);
  EXPECT_NE(plain, flipped);
  for (size_t row = 0; row < flipped.size(); row += 8) {
    std::reverse(flipped.begin() + row, flipped.begin() + row + 8);
  }
  EXPECT_EQ(plain, flipped);
}

TEST(ResizeCropTest, AFlatPictureStaysFlatAtAnySize) {
  for (int side : {1, 7, 32, 224}) {
    for (uint8_t value : {0, 77, 255}) {
      std::vector<uint8_t> planes =
          Resized(Flat(50, 37, value), {3, 5, 40, 30}, side);
      EXPECT_EQ(std::count(planes.begin(), planes.end(), value),
                static_cast<long>(planes.size()))
          << side;
    }
  }
}

// A checkerboard of single pixels: sampling without a wider filter would alias
// to black or white instead of grey.
TEST(ResizeCropTest, ShrinkingAveragesInsteadOfSampling) {
  Image image = Flat(64, 64, 0);
  for (int y = 0; y < 64; ++y) {
    for (int x = y % 2; x < 64; x += 2) {
      std::fill_n(image.Row(y) + x * 3, 3, 255);
    }
  }
  std::vector<uint8_t> planes = Resized(image, {0, 0, 64, 64}, 8);
  for (uint8_t value : planes) EXPECT_NEAR(value, 127.5, 8);
}

TEST(ResizeCropTest, DoublingBlendsNeighbours) {
  Image image{2, 1, {0, 0, 0, 100, 100, 100}};
  std::vector<uint8_t> planes = Resized(image, {0, 0, 2, 1}, 4);
  EXPECT_EQ(std::vector<uint8_t>(planes.begin(), planes.begin() + 4),
            (std::vector<uint8_t>{0, 25, 75, 100}));
}

TEST(ResizeCropTest, NothingOutsideTheBoxIsUsed) {
  Image image = Flat(20, 20, 255);
  for (int y = 4; y < 12; ++y) {
    std::fill_n(image.Row(y) + 6 * 3, 8 * 3, 10);
  }
  for (int side : {3, 8, 30}) {
    std::vector<uint8_t> planes = Resized(image, {6, 4, 8, 8}, side);
    EXPECT_EQ(*std::max_element(planes.begin(), planes.end()), 10) << side;
  }
}

TEST(DrawSideTest, FiveSidesAroundTheOneGiven) {
  std::set<int> sides;
  for (uint64_t i = 0; i < 200; ++i) {
    Random random(1, i);
    sides.insert(DrawSide(64, random));
  }
  EXPECT_EQ(sides, (std::set<int>{48, 56, 64, 72, 80}));
  EXPECT_EQ(SmallestDrawnSide(64), 48);
}

TEST(DrawSideTest, NoneIsSmallerThanANetworkTakes) {
  for (int side : {16, 17, 20, 24}) {
    EXPECT_GE(SmallestDrawnSide(side), 16);
    for (uint64_t i = 0; i < 100; ++i) {
      Random random(1, i);
      EXPECT_GE(DrawSide(side, random), SmallestDrawnSide(side));
    }
  }
}

TEST(NormalizeTest, EachChannelHasItsOwnMeanAndDeviation) {
  std::vector<uint8_t> planes = {0, 255, 0, 255, 0, 255};
  std::vector<float> out(6);
  Normalize(planes, out);
  for (int c = 0; c < 3; ++c) {
    EXPECT_NEAR(out[c * 2], -kMean[c] / kStd[c], 1e-5);
    EXPECT_NEAR(out[c * 2 + 1], (1 - kMean[c]) / kStd[c], 1e-5);
  }
}

}  // namespace
}  // namespace resnet::transforms_test
