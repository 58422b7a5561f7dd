#include "replay/cpu/op_growth.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/cpu_text.h"

namespace stepscope::op_growth_test {
namespace {

// 32 x 64 x 8 x 8 by 64 x 64 x 3 x 3: 151 million operations.
constexpr const char* kWide =
    "inputs=(float[32,64,8,8],float[64,64,3,3],,=\"[1, 1]\",=\"[1, 1]\","
    "=\"[1, 1]\",=\"1\") aten::conv2d";
// As many operations with 9.4 MB of weights.
constexpr const char* kDeep =
    "inputs=(float[32,512,1,1],float[512,512,3,3],,=\"[1, 1]\",=\"[1, 1]\","
    "=\"[1, 1]\",=\"1\") aten::conv2d";
// Moves 12 MB.
constexpr const char* kStream =
    "inputs=(float[1000,1000],float[1000,1000]) aten::add_";

std::vector<double> FixedUs(const CpuText& text) {
  const Trace trace = text.Recorded();
  std::vector<RowId> rows;
  for (RowId row = 0; row < trace.ops().size(); ++row) rows.push_back(row);
  const OpGrowth growth(trace, rows);
  std::vector<double> fixed;
  for (RowId row : rows) fixed.push_back(growth.FixedNs(row) * 1e-3);
  return fixed;
}

TEST(OpGrowthTest, TimeBeyondTheBestRateIsSpentOnWeights) {
  CpuText text;
  text.Op(kWide, 1000);
  text.Op(kDeep, 1600);
  text.Op(kStream, 400);  // 30 GB/s
  const std::vector<double> fixed = FixedUs(text);
  EXPECT_NEAR(fixed[0], 0, 1);
  EXPECT_NEAR(fixed[1], 600, 10);
  EXPECT_DOUBLE_EQ(fixed[2], 0);  // without weights, all of it grows
}

TEST(OpGrowthTest, FixedTimeIsLimitedByTheSizeOfTheWeights) {
  CpuText text;
  text.Op(kWide, 1000);
  text.Op(kDeep, 9000);
  text.Op(kStream, 400);
  // At a third of 30 GB/s, moving 9.4 MB three times.
  EXPECT_NEAR(FixedUs(text)[1], 3 * 9437 * 3 / 30, 30);
}

// A gradient of 4 MiB from 4 rows: 8.4 million operations take 168 us at 50
// GFLOP/s.
constexpr const char* kGradient =
    "inputs=(float[1024,4],float[4,1024]) aten::mm";

TEST(OpGrowthTest, ANewGradientIsAsLargeForAnyBatch) {
  CpuText text;
  text.Op(kGradient, 1300);
  text.Op(
      "kind=backward inputs=(float[1024,1024]) torch::autograd::AccumulateGrad",
      10);
  text.Op(kStream, 400);
  EXPECT_NEAR(FixedUs(text)[0], 1300 - 8388.608 / 50, 1);
}

// A product with `matrix`, which is not the weight of a linear layer. A matrix
// of the sizes in `gradient` gets a gradient.
CpuText ByMatrix(const std::string& gradient, const std::string& before = "") {
  CpuText text;
  const std::string by = "inputs=(float[1024,1024],float[1024,4])";
  text.Op(by + " aten::mm", 500);
  if (!before.empty()) text.Op(before, 10);
  text.Op("kind=backward inputs=(float" + gradient +
              ") torch::autograd::AccumulateGrad",
          10);
  return text;
}

// For example, a graph's adjacency matrix grows with the number of nodes.
TEST(OpGrowthTest, AnOperandThatIsNoParameterGrows) {
  EXPECT_NEAR(FixedUs(ByMatrix("[4,4]"))[0], 0, 1);
  EXPECT_NEAR(FixedUs(ByMatrix("[1024,1024]"))[0], 500 - 168, 1);
}

// A frozen linear layer has weights without gradients.
TEST(OpGrowthTest, FrozenLinearLayersHaveWeights) {
  const CpuText text =
      ByMatrix("[4,4]", "inputs=(float[4,1024],float[1024,1024]) aten::linear");
  EXPECT_NEAR(FixedUs(text)[0], 500 - 168, 1);
}

// Other results grow with the batch, and small gradients reuse memory.
TEST(OpGrowthTest, OnlyLargeGradientsAreNewMemory) {
  CpuText other;
  other.Op(kGradient, 1300);
  other.Op(
      "kind=backward inputs=(float[1024,512]) torch::autograd::AccumulateGrad",
      10);
  other.Op(kStream, 400);
  EXPECT_NEAR(FixedUs(other)[0], 0, 1);
  CpuText small;
  small.Op("inputs=(float[180,4],float[4,180]) aten::mm", 1300);
  small.Op(
      "kind=backward inputs=(float[180,180]) torch::autograd::AccumulateGrad",
      10);
  small.Op(kStream, 400);
  EXPECT_LT(FixedUs(small)[0], 20);
}

TEST(OpGrowthTest, TakesTheResultShapeFromTheConsumerWithoutStrides) {
  CpuText text;
  text.Op("inputs=(float[32,64,8,8],float[64,64,3,3]) aten::conv2d", 1000);
  text.Op("inputs=(float[32,64,8,8]) aten::relu_", 10);
  text.Op("inputs=(float[32,512,1,1],float[512,512,3,3]) aten::conv2d", 1600);
  text.Op("inputs=(float[32,512,1,1]) aten::relu_", 10);
  text.Op(kStream, 400);
  EXPECT_NEAR(FixedUs(text)[2], 600, 10);
}

TEST(OpGrowthTest, SmallWeightsExplainNothing) {
  CpuText text;
  text.Op(kWide, 1000);
  // A slow convolution with three channels.
  text.Op(
      "inputs=(float[32,3,32,32],float[8,3,3,3],,=\"[1, 1]\",=\"[1, 1]\","
      "=\"[1, 1]\",=\"1\") aten::conv2d",
      1000);
  text.Op(kStream, 400);
  EXPECT_LT(FixedUs(text)[1], 1);
}

TEST(OpGrowthTest, WithoutShapesEverythingGrows) {
  CpuText text;
  text.Op("aten::conv2d", 1000);
  text.Op("aten::mm", 1000);
  EXPECT_EQ(FixedUs(text), (std::vector<double>{0, 0}));
}

// All products have four rows, so even the best one shows no arithmetic rate.
// 4.2 MB of weights pass at 10 GB/s and at a third of that.
TEST(OpGrowthTest, FewRowsByLargeWeightsTakeTheTimeOfTheWeights) {
  CpuText text;
  text.Op("inputs=(float[4,1024],float[1024,1024]) aten::mm", 500);
  text.Op("inputs=(float[4,1024],float[1024,1024]) aten::mm", 500);
  // 8.4 million operations take 168 us.
  EXPECT_NEAR(FixedUs(text)[0], 500 - 168, 1);
}

TEST(OpGrowthTest, WeightsThatACacheHoldsAreNotMoved) {
  CpuText text;
  text.Op("inputs=(float[4,256],float[256,256]) aten::mm", 500);
  text.Op("inputs=(float[4,256],float[256,256]) aten::mm", 500);
  EXPECT_NEAR(FixedUs(text)[0], 0, 1);
}

}  // namespace
}  // namespace stepscope::op_growth_test
