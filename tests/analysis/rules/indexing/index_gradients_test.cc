#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

namespace stepscope::index_gradients_test {
namespace {

// Steps with 5 ms of products on a GPU and, for each of `rows`, 3 ms for the
// gradient of x[index], or for the program's own op `own`.
Report Gathered(const std::string& kernel, const std::vector<std::string>& rows,
                const std::string& own = "") {
  ComputeText text;
  for (int i = 0; i < 3; ++i) {
    text.Op("aten::mm", "", {{"ampere_bf16_s16816gemm_bf16_nn", 5'000}});
    for (const std::string& added : rows) {
      text.Begin();
      text.Pass(1);
      text.Op("aten::_index_put_impl_",
              "(float[20000,128],Scalar," + added +
                  ",Scalar=\"True\",Scalar=\"True\")",
              {{"cub::DeviceRadixSortOnesweepKernel", 500}, {kernel, 2'500}});
      if (own.empty()) {
        text.End("IndexBackward0", "", 0, "kind=backward");
      } else {
        text.End(own);
      }
    }
    text.EndStep();
  }
  return text.Analyzed();
}
constexpr const char* kSorted =
    "void at::native::(anonymous namespace)::indexing_backward_kernel<float>()";

TEST(SortedIndexGradientTest, CountsWhatAtomicsWouldMove) {
  const Report report = Gathered(kSorted, {"float[100000,128]"});
  const Finding* finding = Find(report, "sorted-index-gradient");
  ASSERT_NE(finding, nullptr);
  // Moving 51 MB three times at 80 % of 2039 GB/s takes 0.09 ms.
  EXPECT_NEAR(finding->gain.expected_ms, 3 - 0.094, 0.02);
  EXPECT_NE(finding->fix_python.find("index_select"), std::string::npos);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
}

TEST(SortedIndexGradientTest, IsABoundWithoutSizes) {
  const Report report = Gathered(kSorted, {"Scalar"});
  const Finding* finding = Find(report, "sorted-index-gradient");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
}

// What is known of the other index does not count either: a bound that is in
// part a prediction would be neither.
TEST(SortedIndexGradientTest, IsABoundIfOneOfTwoSizesIsUnknown) {
  const std::string known = "float[100000,128]";
  for (const auto& rows : {std::vector<std::string>{known, "Scalar"},
                           std::vector<std::string>{"Scalar", known}}) {
    const Report report = Gathered(kSorted, rows);
    const Finding* finding = Find(report, "sorted-index-gradient");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->gain_kind, GainKind::kBound);
    EXPECT_NEAR(finding->gain.expected_ms, 6, 0.01) << rows.front();
  }
}

TEST(SortedIndexGradientTest, SeesTheProgramsOwnIndexPut) {
  const Report report =
      Gathered(kSorted, {"float[100000,128]"}, "aten::index_put_");
  const Finding* finding = Find(report, "sorted-index-gradient");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("Index_put with accumulate=True sorts"),
            std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(finding->fix_python.starts_with("x.index_add_(0, index, rows)"))
      << finding->fix_python;
}

TEST(SortedIndexGradientTest, KnowsDeterministicAlgorithms) {
  const Report report =
      Gathered(kSorted, {"float[100000,128]"}, "aten::scatter_add_");
  const Finding* finding = Find(report, "sorted-index-gradient");
  ASSERT_NE(finding, nullptr);
  EXPECT_TRUE(
      finding->evidence.starts_with("torch.use_deterministic_algorithms is on"))
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("use_deterministic_algorithms(False)"),
            std::string::npos);
}

TEST(SortedIndexGradientTest, StaysSilentAboutOtherKernels) {
  EXPECT_TRUE(IsClean(Gathered("index_put_kernel", {"float[100000,128]"}),
                      "sorted-index-gradient"));
}

// Steps of 40 ms with x[index], whose forward pass takes 2 ms, and its
// backward pass `put_us`. The op `inside` is called inside `_index_put_impl_`.
Report OnCpu(int64_t put_us, const std::string& inside = "",
             const std::string& type = "float") {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    const std::string link = "sequence=" + std::to_string(step);
    text.Op(link + " inputs=(float[4000,64],GenericList) aten::index", 2'000);
    text.Op("aten::mm", 38'000 - put_us);
    text.Inside("inputs=(" + type + "[4000,64],GenericList," + type +
                    "[40000,64]) aten::_index_put_impl_",
                put_us);
    if (!inside.empty()) text.Inside(inside, 100);
    text.Op("kind=backward " + link + " IndexBackward0", put_us + 10);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(AtomicIndexGradientTest, LeavesWhatIndexSelectTakes) {
  const Report report = OnCpu(12'000);
  const Finding* finding = Find(report, "atomic-index-gradient");
  ASSERT_NE(finding, nullptr);
  // Half of the forward pass in backward, a quarter of it in forward.
  EXPECT_NEAR(finding->gain.expected_ms, 12 - 1 + 1.5, 0.01);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(finding->evidence.find("12.0 ms per step, 6 times as long"),
            std::string::npos)
      << finding->evidence;
}

// On one thread, nothing is atomic, and the backward pass takes at most 1.7
// times as long as the forward pass.
TEST(AtomicIndexGradientTest, IgnoresBackwardPassesOfOneThread) {
  EXPECT_TRUE(IsClean(OnCpu(3'400), "atomic-index-gradient"));
}

// Other types are added without atomics, and index_select is slower for them.
TEST(AtomicIndexGradientTest, IsAboutFloat32) {
  EXPECT_TRUE(IsClean(OnCpu(12'000, "", "double"), "atomic-index-gradient"));
  EXPECT_TRUE(
      IsClean(OnCpu(12'000, "", "c10::BFloat16"), "atomic-index-gradient"));
}

TEST(AtomicIndexGradientTest, LeavesMasksOfElementsToBooleanMask) {
  EXPECT_TRUE(IsClean(OnCpu(12'000, "inputs=(bool[4000,64]) aten::nonzero"),
                      "atomic-index-gradient"));
  EXPECT_FALSE(IsClean(OnCpu(12'000, "inputs=(bool[4000]) aten::nonzero"),
                       "atomic-index-gradient"));
}

}  // namespace
}  // namespace stepscope::index_gradients_test
