// Runs the compute rules on traces that other people recorded, and checks known
// facts about these traces (tests/data/traces/README.md).
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/kernel_class.h>
#include <stepscope/read.h>

#include <algorithm>
#include <string>

#include "analysis/rules/rule_testing.h"
#include "support/real_trace_path.h"

namespace stepscope::compute_real_traces_test {
namespace {

class ComputeRealTracesTest : public testing::Test {
 protected:
  void Read(const std::string& name, const auto& test) {
    const std::string path = RealTracePath(name);
    if (path.empty()) GTEST_SKIP() << name << " is not at hand";
    const absl::StatusOr<Trace> trace = ReadTrace(path);
    ASSERT_TRUE(trace.ok()) << trace.status().message();
    test(*trace);
  }
};

// Counts kernels of products and convolutions on Tensor Cores.
int64_t TensorCoreKernels(const Trace& trace) {
  return std::ranges::count_if(trace.kernels(), [&](const Kernel& kernel) {
    return TraitsOfKernel(trace.name(kernel.name)).tensor_cores ==
           TensorCores::kYes;
  });
}

FindingSeverity SeverityOf(const Report& report, std::string_view id) {
  const Finding* finding = Find(report, id);
  EXPECT_NE(finding, nullptr) << id;
  return finding == nullptr ? FindingSeverity::kCritical : finding->severity;
}

// A separate script with its own list of names counted the kernels in
// stats.json.
TEST_F(ComputeRealTracesTest, CountTensorCoreKernelsAsAnIndependentScript) {
  for (const auto& [name, count] :
       {std::pair{"ddp_resnet_a100_rank0of2.json.gz", 489},
        {"recsys_a100_rank3of8.json.gz", 1638},
        {"owlv2_h100.json.gz", 1475},
        {"part_a100_bs2.json.gz", 66},
        {"part_a100_bs128.json.gz", 63},
        {"resnet50_v100_workers0.pt.trace.json.gz", 0}}) {
    Read(name, [&](const Trace& trace) {
      EXPECT_EQ(TensorCoreKernels(trace), count) << name;
    });
  }
}

TEST_F(ComputeRealTracesTest, IdleTensorCoresOfAHostBoundRunAreANote) {
  Read("resnet50_v100_workers0.pt.trace.json.gz", [](const Trace& trace) {
    const Report report = Analyze(trace);
    EXPECT_EQ(SeverityOf(report, "tensor-cores-idle"), FindingSeverity::kNote);
    EXPECT_TRUE(IsClean(report, "layout-transpose"));  // transposes take 0.2 %
    EXPECT_TRUE(IsClean(report, "tf32-off"));  // this device has no TF32
    EXPECT_TRUE(IsClean(report, "bias-before-norm"));
  });
}

TEST_F(ComputeRealTracesTest, TransposesBehindABusyHostAreANote) {
  Read("ddp_resnet_a100_rank0of2.json.gz", [](const Trace& trace) {
    const Report report = Analyze(trace);
    EXPECT_EQ(SeverityOf(report, "launch-bound"), FindingSeverity::kCritical);
    EXPECT_EQ(SeverityOf(report, "layout-transpose"), FindingSeverity::kNote);
    EXPECT_TRUE(IsClean(report, "unfused-optimizer"));
  });
}

TEST_F(ComputeRealTracesTest, ABf16RunHasNoIdleTensorCores) {
  Read("owlv2_h100.json.gz", [](const Trace& trace) {
    const Report report = Analyze(trace);
    EXPECT_TRUE(IsClean(report, "tensor-cores-idle"));
    EXPECT_TRUE(IsClean(report, "unfused-optimizer"));
    EXPECT_TRUE(IsClean(report, "zero-grad-kernels"));
  });
}

TEST_F(ComputeRealTracesTest, CheckpointingIsNoValidationInTrainingMode) {
  Read("ddp_resnet_mi300x_rank0of8.json.gz", [](const Trace& trace) {
    EXPECT_EQ(Find(Analyze(trace), "validation-mode"), nullptr);
  });
}

}  // namespace
}  // namespace stepscope::compute_real_traces_test
