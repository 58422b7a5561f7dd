#include <string>
#include <vector>

#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"
#include "support/gpu_text.h"

namespace stepscope::boolean_masks_test {
namespace {

constexpr const char* kRule = "boolean-mask";

// x[mask] takes 2 ms of a step of 10 ms, including the search for the set
// elements of `mask`.
Report Of(const std::string& mask) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Nested("inputs=(float[768,768]) aten::index", 2'000,
                "inputs=(bool[" + mask + "]) aten::nonzero", 1'500);
    text.Op("aten::sort", 8'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(BooleanMasksTest, FindsPicksOfSingleElements) {
  const Report report = Of("768,768");
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.01);
}

TEST(BooleanMasksTest, AllowsPicksOfRows) {
  EXPECT_TRUE(IsClean(Of("768"), kRule));
}

// x[mask] with one mask for each entry of `rows`. The host waits for the number
// of selected rows each time.
Report Groups(const std::vector<std::string>& rows) {
  GpuText text;
  for (int step = 0; step < 4; ++step) {
    for (const std::string& length : rows) {
      text.Begin("op", "aten::index", "inputs=(float[" + length + ",64])");
      text.Begin("op", "aten::nonzero", "inputs=(bool[" + length + "])");
      text.Kernel(10, "flag");
      text.BlockingCopy(2, "device", "pageable", 8);
      text.End();
      text.Kernel(10, "gather");
      text.End();
    }
    text.Kernel(1'000, "gemm");
    text.Synchronize();
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(BooleanMasksTest, FindsPicksGroupByGroupOnAGpu) {
  const Report report = Groups(std::vector<std::string>(16, "512"));
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // At least the GPU time of the picks.
  EXPECT_GE(finding->gain.expected_ms, 16 * 0.022);
  EXPECT_NE(finding->evidence.find("tensors of 512 rows 16 times per step"),
            std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(IsClean(Groups(std::vector<std::string>(15, "512")), kRule));
  // The last mask selects from a tensor of another size.
  std::vector<std::string> rows(15, "512");
  rows.emplace_back("256");
  EXPECT_TRUE(IsClean(Groups(rows), kRule));
}

// On a CPU there is nothing to wait for.
TEST(BooleanMasksTest, AllowsPicksGroupByGroupOnACpu) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 16; ++i) {
      text.Nested("inputs=(float[512,64]) aten::index", 200,
                  "inputs=(bool[512]) aten::nonzero", 100);
    }
    text.Op("aten::sort", 1'000);
    text.EndStep();
  }
  EXPECT_TRUE(IsClean(text.Analyzed(), kRule));
}

}  // namespace
}  // namespace stepscope::boolean_masks_test
