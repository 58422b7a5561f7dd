#include "analysis/rules/rule_testing.h"
#include "support/gpu_text.h"

namespace stepscope::single_uploads_test {
namespace {

constexpr char kRule[] = "single-uploads";

// Each step uploads samples one by one, and then computes for 4 ms. A sample
// takes 30 us on the host, of which it waits 7 us for the copy.
struct Uploading {
  int samples = 200;
  int64_t bytes = 20'000;  // of the first sample
  int64_t growth = 0;      // of each sample after it, in bytes
  int kernel_every = 0;    // runs a kernel after so many samples; 0: never
  int in_every = 1;        // only such steps upload samples
};

Report Of(const Uploading& o) {
  GpuText run;
  run.Line("device vendor=Nvidia compute_major=8 NVIDIA A100");
  for (int step = 0; step < 6; ++step) {
    for (int i = 0; step % o.in_every == 0 && i < o.samples; ++i) {
      run.Begin("op", "aten::to");
      run.Pass(8);
      run.Begin("op", "aten::copy_");
      run.Pass(4);
      run.Copy(5, "pageable", "device", o.bytes + i * o.growth);
      run.Synchronize();
      run.End();
      run.Pass(6);
      run.End();
      if (o.kernel_every > 0 && i % o.kernel_every == 0) {
        run.Begin("op", "aten::relu");
        run.Kernel(2, "relu");
        run.End();
      }
    }
    run.Begin("op", "aten::mm");
    run.Kernel(4'000, "gemm");
    run.End();
    run.Synchronize();
    run.EndStep();
  }
  return run.Analyzed();
}

// advice_test predicts and measures the gain.
TEST(SingleUploadsTest, CountsWhatTheyTakeOnTheHost) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
  EXPECT_NE(finding->evidence.find("200 tensors per step are uploaded one by "
                                   "one, 20.0 kB each"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("These 4.0 MB take 6.00 ms of host time"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("torch.stack"), std::string::npos);
}

TEST(SingleUploadsTest, NeedsSixteenInARow) {
  EXPECT_TRUE(IsClean(Of({.samples = 15}), kRule));
  EXPECT_FALSE(IsClean(Of({.samples = 16}), kRule));
  EXPECT_TRUE(IsClean(Of({.kernel_every = 15}), kRule));
  EXPECT_FALSE(IsClean(Of({.kernel_every = 17}), kRule));
}

// Weights that are moved to the device differ in size.
TEST(SingleUploadsTest, LeavesTensorsOfDifferentSizesAlone) {
  EXPECT_TRUE(IsClean(Of({.growth = 4}), kRule));
}

TEST(SingleUploadsTest, NeedsThemInMostSteps) {
  EXPECT_TRUE(IsClean(Of({.in_every = 2}), kRule));
}

}  // namespace
}  // namespace stepscope::single_uploads_test
