#include "analysis/rules/rule_testing.h"
#include "support/gpu_text.h"

namespace stepscope::host_compute_test {
namespace {

constexpr const char* kRule = "host-compute";

struct How {
  double op_us = 2'000;  // of an op that launches nothing
  bool in_optimizer = false;
  bool launches = false;  // the op waits for the GPU instead of computing
  bool busy = false;      // the GPU has work at the same time
  int parts = 0;          // number of inner ops
  std::string name = "aten::argmax";
};

// Five steps with 4 ms on the GPU. Then the host waits for the GPU and
// computes.
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

TEST(HostComputeTest, FindsAMetricOfADownloadedTensor) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Nothing is launched after the last step, but it is idle as well.
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.1);
  EXPECT_NE(finding->fix_python.find("argmax(1).cpu()"), std::string::npos);
}

// logits.cpu().float().argmax(1): the copy belongs to it as well.
TEST(HostComputeTest, CountsTheDownloadOfWhatIsConvertedFirst) {
  const auto of = [](double pause_us) {
    GpuText run;
    for (int step = 0; step < 5; ++step) {
      run.Begin("op", "aten::mm");
      run.Kernel(4'000, "gemm");
      run.End();
      run.Item();
      run.Begin("op", "aten::copy_");
      run.BlockingCopy(1'000, "device", "pageable", 8'000'000);
      run.End();
      run.Pass(pause_us);
      run.Op(1'000, "aten::to");
      run.Op(2'000, "aten::argmax");
      run.EndStep();
    }
    return run.Analyzed();
  };
  const Report report = of(10);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.1);
  // Something else may have taken it.
  const Report later = of(500);
  ASSERT_NE(Find(later, kRule), nullptr);
  EXPECT_NEAR(Find(later, kRule)->gain.expected_ms, 3.5, 0.1);
}

// An op that finds a few values among others does not make a large upload.
TEST(HostComputeTest, CountsUploadsThatMayBeTheResult) {
  const auto of = [](const std::string& taken) {
    GpuText run;
    for (int step = 0; step < 5; ++step) {
      run.Begin("op", "aten::mm");
      run.Kernel(2'000, "gemm");
      run.End();
      run.Item();
      run.Op(2'000, "aten::_unique2", "inputs=(float[" + taken + "])");
      run.Begin("op", "aten::copy_", "inputs=(float[1000000],float[1000000])");
      run.BlockingCopy(1'000, "pageable", "device", 4'000'000);
      run.End();
      run.EndStep();
    }
    return run.Analyzed();
  };
  const Report report = of("2000000");
  ASSERT_NE(Find(report, kRule), nullptr);
  EXPECT_NEAR(Find(report, kRule)->gain.expected_ms, 3, 0.1);
  const Report few = of("1000");
  ASSERT_NE(Find(few, kRule), nullptr);
  EXPECT_NEAR(Find(few, kRule)->gain.expected_ms, 2, 0.1);
}

// If most of the idle time is in such ops, all of it counts, but not the time
// in which the device works.
TEST(HostComputeTest, LeavesTheWorkOfTheDevice) {
  const Report report = Of({.op_us = 20'000});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_LE(finding->gain.expected_ms, report.steps.mean_ms - 4 + 0.001);
}

TEST(HostComputeTest, FindsAnOptimizerWithItsStateOnTheHost) {
  const Report report = Of({.in_optimizer = true, .name = "aten::addcdiv_"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("in the optimizer's step"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("before the optimizer is made"),
            std::string::npos);
}

TEST(HostComputeTest, NeedsAnIdleDeviceAndAComputingHost) {
  EXPECT_TRUE(IsClean(Of({.busy = true}), kRule));
  EXPECT_TRUE(IsClean(Of({.launches = true}), kRule));
  EXPECT_TRUE(IsClean(Of({.op_us = 90}), kRule));
  // An op that makes many views.
  EXPECT_TRUE(IsClean(
      Of({.parts = 40, .name = "aten::unflatten_dense_tensors"}), kRule));
}

struct Upload {
  std::string name = "aten::to";  // the op that copies
  std::string gathered = "";      // arguments of the op that computes
  std::string from = "pageable";
  double us = 3'000;         // of the copy
  std::string between = "";  // an op that launches a kernel
};

// Six steps that gather rows in the host's memory in 2 ms, upload them in 3 ms,
// and compute for 4 ms on the GPU.
Report Gathering(const Upload& how) {
  GpuText run;
  for (int step = 0; step < 6; ++step) {
    run.Begin("op", "aten::index_select", how.gathered);
    run.Pass(2'000);
    run.End();
    if (!how.between.empty()) {
      run.Begin("op", how.between);
      run.Kernel(10, "fill");
      run.End();
    }
    run.Begin("op", how.name, "inputs=(float[1000,250])");
    if (how.from == "pageable") {
      run.BlockingCopy(how.us, how.from, "device", 1'000'000);
    } else {
      run.Copy(how.us, how.from, "device", 1'000'000);
    }
    run.End();
    run.Begin("op", "aten::mm");
    run.Kernel(4'000, "gemm");
    run.End();
    run.Item();
    run.EndStep();
  }
  return run.Analyzed();
}

// After the change, the result is on the device already.
TEST(HostComputeTest, CountsTheUploadOfTheResult) {
  const Report report = Gathering({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  // Nothing is launched before the first step.
  EXPECT_NEAR(finding->gain.expected_ms, 5.0 / 6 * 2 + 3, 0.1);
  EXPECT_NE(finding->evidence.find("Copies of the results to the device block "
                                   "it for 3.0"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("features[ids]"), std::string::npos);
  const std::string indices = ",=\"0\",long int[1000]";
  EXPECT_NEAR(
      Find(Gathering({.gathered = "inputs=(float[9000,250]" + indices + ")"}),
           kRule)
          ->gain.expected_ms,
      5.0 / 6 * 2 + 3, 0.1);
}

TEST(HostComputeTest, LeavesUploadsOfOtherTensors) {
  const std::string indices = ",=\"0\",long int[1000]";
  for (const Upload& how :
       {Upload{.gathered = "inputs=(float[9000,128]" + indices + ")"},
        Upload{.name = "aten::mul"}, Upload{.from = "pinned"}, Upload{.us = 10},
        Upload{.between = "aten::fill_"}}) {
    const Report report = Gathering(how);
    const Finding* finding = Find(report, kRule);
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->evidence.find("Copies of the results"),
              std::string::npos)
        << finding->evidence;
    EXPECT_LT(finding->gain.expected_ms, 2.2);
  }
}

struct NativeStep {
  double update_us = 2'000;          // in the optimizer's step, outside ops
  std::vector<std::string> op = {};  // an op in it that takes 10 us, and its
                                     // inner ops
  double kernel_us = 4'000;
  bool busy = false;  // the GPU has work during 60 % of the update
  int updates = 6;    // steps that update parameters
};

// Six steps that wait for the gradients, update parameters in the host's memory
// and upload them.
Report Updating(const NativeStep& how) {
  GpuText run;
  for (int step = 0; step < 6; ++step) {
    run.Begin("op", "aten::mm");
    run.Kernel(how.kernel_us, "gemm");
    run.End();
    run.Item();
    if (how.busy) {
      run.Begin("op", "aten::mm");
      run.Kernel(0.6 * how.update_us, "gemm");
      run.End();
    }
    if (step < how.updates) {
      run.Begin("range", "Optimizer.step#DeepSpeedCPUAdam.step",
                "kind=optimizer");
    }
    run.Pass(how.update_us);
    for (const std::string& name : how.op) run.Begin("op", name);
    if (!how.op.empty()) run.Pass(10);
    for (size_t i = 0; i < how.op.size(); ++i) run.End();
    run.Begin("op", "aten::copy_");
    run.Copy(50, "pinned", "device", 1'000'000);
    run.End();
    if (step < how.updates) run.End();
    run.Item();
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(HostComputeTest, FindsAnOptimizerThatUpdatesInNativeCode) {
  const Report report = Updating({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.1);
  EXPECT_NE(finding->evidence.find("(DeepSpeedCPUAdam) takes 2.0"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("without offload_optimizer"),
            std::string::npos)
      << finding->fix_python;
}

TEST(HostComputeTest, CopiesInANativeUpdateDoNotExplainIt) {
  EXPECT_NE(
      Find(Updating({.op = {"aten::to", "aten::_to_copy", "aten::copy_"}}),
           kRule),
      nullptr);
  for (const char* name : {"aten::_fused_adamw_", "aten::add_"}) {
    EXPECT_TRUE(IsClean(Updating({.op = {name}}), kRule)) << name;
  }
}

TEST(HostComputeTest, ANativeUpdateNeedsAnIdleDevice) {
  EXPECT_TRUE(IsClean(Updating({.busy = true}), kRule));
}

TEST(HostComputeTest, ANativeUpdateOccursInTwoThirdsOfTheSteps) {
  EXPECT_TRUE(IsClean(Updating({.updates = 3}), kRule));
  EXPECT_FALSE(IsClean(Updating({.updates = 4}), kRule));
}

TEST(HostComputeTest, ANativeUpdateTakesThreePerCentOfTheStep) {
  EXPECT_TRUE(IsClean(Updating({.update_us = 150, .kernel_us = 9'000}), kRule));
  EXPECT_FALSE(
      IsClean(Updating({.update_us = 350, .kernel_us = 9'000}), kRule));
}

TEST(HostComputeTest, ANativeUpdateTakesATenthOfAMillisecond) {
  EXPECT_TRUE(IsClean(Updating({.update_us = 80, .kernel_us = 900}), kRule));
  EXPECT_FALSE(IsClean(Updating({.update_us = 110, .kernel_us = 900}), kRule));
}

}  // namespace
}  // namespace stepscope::host_compute_test
