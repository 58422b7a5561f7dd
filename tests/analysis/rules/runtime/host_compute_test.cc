#include "analysis/rules/rule_testing.h"
#include "support/gpu_text.h"

namespace stepscope::host_compute_test {
namespace {

constexpr const char* kRule = "host-compute";

struct How {
  double op_us = 2'000;  // of an op that launches nothing
  bool in_optimizer = false;
  bool launches = false;  // the op waits for the GPU in place of computing
  bool busy = false;      // the GPU has work meanwhile
  int parts = 0;          // ops inside the op
  std::string name = "aten::argmax";
};

// Five steps of 4 ms on the GPU; then the host waits for it and computes.
Report Of(const How& how) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    run.Begin("op", "aten::mm");
    run.Kernel(how.busy ? 9'000 : 4'000, "gemm");
    run.End();
    if (!how.busy) run.Item();
    if (how.in_optimizer)
      run.Begin("range", "Optimizer.step#AdamW.step", "kind=optimizer");
    run.Begin("op", how.name);
    if (how.launches) run.Call(how.op_us, "cudaHostAlloc");
    for (int i = 0; i < how.parts; ++i) {
      run.Op(how.op_us / how.parts, "aten::narrow");
    }
    if (!how.launches && how.parts == 0) run.Pass(how.op_us);
    run.End();
    if (how.in_optimizer) run.End();
    if (how.busy) run.Item();
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(HostComputeTest, AMetricOfWhatWasDownloaded) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Behind the last step nothing is launched.
  EXPECT_NEAR(finding->gain.expected_ms, 4.0 / 5 * 2, 0.1);
  EXPECT_NE(finding->fix_python.find("argmax(1).cpu()"), std::string::npos);
}

TEST(HostComputeTest, AnOptimizerWhoseStateIsOnTheHost) {
  const Report report = Of({.in_optimizer = true, .name = "aten::addcdiv_"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("in the optimizer's step"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("before the optimizer is made"),
            std::string::npos);
}

TEST(HostComputeTest, TheDeviceMustBeIdleAndTheHostComputing) {
  EXPECT_TRUE(IsClean(Of({.busy = true}), kRule));
  EXPECT_TRUE(IsClean(Of({.launches = true}), kRule));
  EXPECT_TRUE(IsClean(Of({.op_us = 90}), kRule));
  // Views of many parts.
  EXPECT_TRUE(IsClean(
      Of({.parts = 40, .name = "aten::unflatten_dense_tensors"}), kRule));
}

}  // namespace
}  // namespace stepscope::host_compute_test
