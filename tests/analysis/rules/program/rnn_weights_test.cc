#include "analysis/rules/rule_testing.h"
#include "support/gpu_text.h"

namespace stepscope::rnn_weights_test {
namespace {

constexpr const char* kRule = "scattered-rnn-weights";

// Steps of 10 ms on the GPU, in which an LSTM copies `copies` tensors of 0.2 ms
// itself.
Report Of(int copies, const char* op = "aten::_cudnn_rnn") {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    run.Begin("op", "aten::lstm");
    run.Pass(1);
    run.Begin("op", op);
    for (int i = 0; i < copies; ++i) {
      run.Begin("op", "aten::copy_");
      run.Copy(200, "device", "device", 16'777'216);
      run.End();
    }
    run.Kernel(10'000 - 200 * copies, "LSTM_elementWise_fp");
    run.End();
    run.End();
    run.Item();
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(ScatteredRnnWeightsTest, FindsCopiesOfAllWeightsInEachCall) {
  const Report report = Of(8);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  EXPECT_NEAR(finding->gain.expected_ms, 1.6, 0.1);
  EXPECT_NE(finding->evidence.find("8 copies in 1 call per step, 1.60 ms"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("flatten_parameters()"),
            std::string::npos);
}

TEST(ScatteredRnnWeightsTest, LeavesTheInputAndTheStates) {
  EXPECT_TRUE(IsClean(Of(3), kRule));
  EXPECT_FALSE(IsClean(Of(4), kRule));
}

TEST(ScatteredRnnWeightsTest, LeavesCopiesOfOtherOps) {
  EXPECT_TRUE(IsClean(Of(8, "aten::stack"), kRule));
}

}  // namespace
}  // namespace stepscope::rnn_weights_test
