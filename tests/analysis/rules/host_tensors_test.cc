#include "rule_testing.h"
#include "support/gpu_text.h"

namespace stepscope::host_tensors_test {
namespace {

// Ten steps with 4 ms of host work. Each calls `pin`.
template <typename Pin>
Report Pinning(Pin pin) {
  GpuText run;
  for (int step = 0; step < 10; ++step) {
    run.Begin("op", "aten::mm");
    run.Kernel(1000, "gemm");
    run.End();
    pin(run, step);
    run.Op(4000, "aten::relu");
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(PinOnMainThreadTest, FiresOnPinMemoryInTheLoop) {
  const Report report = Pinning([](GpuText& run, int) {
    run.Begin("op", "aten::pin_memory");
    run.Begin("op", "aten::_pin_memory");
    run.Call(800, "cudaHostAlloc");
    run.Pass(200);
    run.End();
    run.Pass(1);
    run.End();
  });
  const Finding* finding = Find(report, "pin-on-main-thread");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1, 0.1);
  EXPECT_NE(finding->fix_python.find("pin_memory=True"), std::string::npos);
  EXPECT_EQ(finding->examples.size(), 3u);
}

TEST(PinOnMainThreadTest, StaysSilentBelowTheGate) {
  const auto with = [](double us) {
    return Pinning(
        [us](GpuText& run, int) { run.Call(us, "cudaHostRegister"); });
  };
  EXPECT_TRUE(IsClean(with(95), "pin-on-main-thread"));
  EXPECT_FALSE(IsClean(with(105), "pin-on-main-thread"));
}

TEST(PinOnMainThreadTest, IgnoresTheLoadersOwnThread) {
  EXPECT_TRUE(IsClean(Pinning([](GpuText& run, int) {
                        run.OnThread(1);
                        run.Begin("op", "aten::pin_memory");
                        run.Call(1000, "cudaHostAlloc");
                        run.End();
                        run.OnThread(0);
                      }),
                      "pin-on-main-thread"));
}

TEST(PinOnMainThreadTest, IgnoresFirstStepsThatFillTheCache) {
  EXPECT_TRUE(IsClean(Pinning([](GpuText& run, int step) {
                        if (step < 6) run.Call(300, "cudaHostAlloc");
                      }),
                      "pin-on-main-thread"));
}

// Five steps. Each fills a tensor of shape `made` on the host and uploads one
// of shape `sent`.
Report Creating(std::string_view made, std::string_view sent,
                std::string_view between = "", bool reused = false) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    const std::string shape = "inputs=(" + std::string(made) + ")";
    if (!reused) run.Begin("op", "aten::randn");
    if (!reused) run.Op(5, "aten::empty");
    run.Op(1000, "aten::normal_", shape);
    if (!reused) run.Pass(1);
    if (!reused) run.End();
    if (!between.empty()) run.Op(10, between, shape);
    const std::string upload = "inputs=(" + std::string(sent) + ")";
    run.Begin("op", "aten::to", upload);
    run.Pass(1);
    run.Begin("op", "aten::_to_copy", upload);
    run.Pass(1);
    run.Begin("op", "aten::copy_",
              "inputs=(" + std::string(sent) + "," + std::string(sent) + ")");
    run.Copy(500, "pageable", "device", 32768);
    run.Synchronize();
    run.End();
    run.Pass(1);
    run.End();
    run.Pass(1);
    run.End();
    run.Op(4000, "aten::relu");
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(HostCreatedTensorTest, FiresOnAFactoryAndAnUploadOfTheSameTensor) {
  const Report report = Creating("float[64,128]", "float[64,128]");
  const Finding* finding = Find(report, "host-created-tensor");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->where, "aten::randn, 32.8 kB each");
  EXPECT_TRUE(finding->evidence.starts_with("1 tensor per step is created"))
      << finding->evidence;
  // 1 ms of filling, and 0.5 ms of waiting for the copy.
  EXPECT_NEAR(finding->gain.expected_ms, 1.5, 0.2);
  EXPECT_NE(finding->fix_python.find("device=\"cuda\""), std::string::npos);
}

// zeros() calls zero_(), which calls fill_() for tensors large enough for
// several threads.
TEST(HostCreatedTensorTest, FindsTheFactoryAboveNestedFills) {
  GpuText run;
  const std::string shape = "inputs=(float[64,1024])";
  for (int step = 0; step < 5; ++step) {
    run.Begin("op", "aten::zeros");
    run.Op(5, "aten::empty");
    run.Begin("op", "aten::zero_", shape);
    run.Pass(1);
    run.Op(1000, "aten::fill_", shape);
    run.Pass(1);
    run.End();
    run.Pass(1);
    run.End();
    run.Begin("op", "aten::to", shape);
    run.Pass(1);
    run.Begin("op", "aten::copy_", "inputs=(float[64,1024],float[64,1024])");
    run.Copy(500, "pageable", "device", 262144);
    run.Synchronize();
    run.End();
    run.Pass(1);
    run.End();
    run.Op(4000, "aten::relu");
    run.EndStep();
  }
  const Report report = run.Analyzed();
  const Finding* finding = Find(report, "host-created-tensor");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->where, "aten::zeros, 262 kB each");
}

TEST(HostCreatedTensorTest, StaysSilentAboutAnotherShapeOrType) {
  EXPECT_TRUE(IsClean(Creating("float[64,128]", "float[64,64]"),
                      "host-created-tensor"));
  EXPECT_TRUE(
      IsClean(Creating("float[64,128]", "int[64,128]"), "host-created-tensor"));
}

TEST(HostCreatedTensorTest, StaysSilentIfSomebodyUsesTheTensorInBetween) {
  // numpy() records aten::detach, aten::resolve_conj and aten::resolve_neg.
  EXPECT_TRUE(
      IsClean(Creating("float[64,128]", "float[64,128]", "aten::resolve_conj"),
              "host-created-tensor"));
}

TEST(HostCreatedTensorTest, StaysSilentAboutSingleValuesAndReusedBuffers) {
  EXPECT_TRUE(IsClean(Creating("float[]", "float[]"), "host-created-tensor"));
  EXPECT_TRUE(IsClean(Creating("float[64,128]", "float[64,128]", "", true),
                      "host-created-tensor"));
}

TEST(HostCreatedTensorTest, CannotLookWithoutShapes) {
  GpuText run;
  run.Op(10, "aten::to");
  run.Copy(10, "pageable", "device", 100);
  run.EndStep();
  EXPECT_NE(WhySkipped(run.Analyzed(), "host-created-tensor"), "");
}

}  // namespace
}  // namespace stepscope::host_tensors_test
