#include "rule_testing.h"
#include "support/cpu_text.h"
#include "support/gpu_text.h"

namespace stepscope::input_types_test {
namespace {

struct HostCopy {
  std::string shape = "float[32,3,224,224]";
  int64_t bytes = int64_t{4} * 32 * 3 * 224 * 224;
  double us = 4000;
  std::string cast = "";  // shape of a cast on the host
  bool hidden = false;    // overlaps with a kernel
};

// Five steps: upload of a batch, then 4 ms of kernels.
Report Uploading(const HostCopy& upload) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    if (!upload.cast.empty()) {
      run.Op(20, "aten::copy_",
             "inputs=(float" + upload.cast + ",\"unsigned char\"" +
                 upload.cast + ")");
    }
    if (upload.hidden) {
      run.Kernel(4000, "gemm");
      run.OnStream(20);
    }
    run.Begin("op", "aten::copy_",
              "inputs=(" + upload.shape + "," + upload.shape + ")");
    run.Copy(upload.us, "pinned", "device", upload.bytes);
    run.End();
    run.OnStream(7);
    if (!upload.hidden) run.Kernel(4000, "gemm");
    run.Synchronize("cudaEventSynchronize");
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(H2dFp32InputTest, FiresOnImagesInFloat) {
  const Report report = Uploading({});
  const Finding* finding = Find(report, "h2d-fp32-input");
  ASSERT_NE(finding, nullptr);
  // A quarter of the 4 ms remains.
  EXPECT_NEAR(finding->gain.expected_ms, 3, 0.3);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->where, "float [32, 3, 224, 224]");
  EXPECT_NE(finding->evidence.find("4.00 times smaller"), std::string::npos);
}

TEST(H2dFp32InputTest, IsStrongIfTheHostCastsBytesFirst) {
  const Report report = Uploading({.shape = "float[32,1,224,224]",
                                   .bytes = int64_t{4} * 32 * 224 * 224,
                                   .cast = "[1,224,224]"});
  const Finding* finding = Find(report, "h2d-fp32-input");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
}

TEST(H2dFp32InputTest, StaysSilentAboutSpectrograms) {
  EXPECT_TRUE(IsClean(Uploading({.shape = "float[32,1,224,224]",
                                 .bytes = int64_t{4} * 32 * 224 * 224}),
                      "h2d-fp32-input"));
}

TEST(H2dFp32InputTest, StaysSilentAboutOtherTensors) {
  EXPECT_TRUE(IsClean(Uploading({.shape = "float[32,64,56,56]",
                                 .bytes = int64_t{4} * 32 * 64 * 56 * 56}),
                      "h2d-fp32-input"));
  EXPECT_TRUE(IsClean(Uploading({.shape = "c10::Half[32,3,224,224]",
                                 .bytes = int64_t{2} * 32 * 3 * 224 * 224}),
                      "h2d-fp32-input"));
}

TEST(H2dFp32InputTest, StaysSilentAboutCopiesThatKernelsHide) {
  EXPECT_TRUE(IsClean(Uploading({.hidden = true}), "h2d-fp32-input"));
}

TEST(H2dFp32InputTest, FiresFromFourMebibytesPerStep) {
  // 4 * 3 * 256 * 256 * N bytes: N = 5 is below 4 MiB, N = 6 above.
  const auto with = [](int64_t n) {
    return Uploading({.shape = "float[" + std::to_string(n) + ",3,256,256]",
                      .bytes = n * 4 * 3 * 256 * 256});
  };
  EXPECT_TRUE(IsClean(with(5), "h2d-fp32-input"));
  EXPECT_FALSE(IsClean(with(6), "h2d-fp32-input"));
}

// Five CPU steps that convert an array to a tensor: lift_fresh, then to(), as
// torch 2.11 records torch.tensor(ndarray).
Report Converting(std::string_view from, std::string_view to, bool copies,
                  double us = 1000) {
  GpuText run;
  const std::string in = "inputs=(" + std::string(from) + ")";
  for (int step = 0; step < 5; ++step) {
    run.Op(2, "aten::lift_fresh", in);
    run.Begin("op", "aten::to", in);
    run.Pass(1);
    if (copies) {
      run.Begin("op", "aten::_to_copy", in);
      run.Pass(1);
      run.Op(us, "aten::copy_",
             "inputs=(" + std::string(to) + "," + std::string(from) + ")");
      run.Pass(1);
      run.End();
    }
    run.Pass(1);
    run.End();
    run.Op(9000, "aten::mm");
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(HostCopyOnConvertTest, FiresOnTorchTensorOfAnArray) {
  const Report report =
      Converting("double[1024,1024]", "double[1024,1024]", true);
  const Finding* finding = Find(report, "host-copy-on-convert");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1, 0.02);
  EXPECT_NE(finding->evidence.find("as_tensor()"), std::string::npos);
}

TEST(HostCopyOnConvertTest, FiresOnDoubleArrays) {
  const Report report =
      Converting("double[1024,1024]", "float[1024,1024]", true);
  const Finding* finding = Find(report, "host-copy-on-convert");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("double to float"), std::string::npos);
}

TEST(HostCopyOnConvertTest, StaysSilentAboutAsTensor) {
  EXPECT_TRUE(
      IsClean(Converting("double[1024,1024]", "double[1024,1024]", false),
              "host-copy-on-convert"));
}

TEST(HostCopyOnConvertTest, StaysSilentAboutOtherCasts) {
  EXPECT_TRUE(IsClean(
      Converting("\"unsigned char\"[1024,1024]", "float[1024,1024]", true),
      "host-copy-on-convert"));
}

TEST(HostCopyOnConvertTest, FiresFromOneMebibyte) {
  EXPECT_TRUE(IsClean(Converting("double[131071]", "double[131071]", true),
                      "host-copy-on-convert"));
  EXPECT_FALSE(IsClean(Converting("double[131072]", "double[131072]", true),
                       "host-copy-on-convert"));
}

TEST(HostCopyOnConvertTest, StaysSilentBelowTheGate) {
  EXPECT_TRUE(
      IsClean(Converting("double[1024,1024]", "double[1024,1024]", true, 80),
              "host-copy-on-convert"));
}

// Steps of 10 ms whose batch comes from torch.tensor() of lists: `sizes_us`
// before aten::empty and `values_us` after it. Ops are recorded without shapes.
Report OfLists(int64_t sizes_us, int64_t values_us, const char* last,
               bool by_loader = false) {
  CpuText text;
  for (int i = 0; i < 6; ++i) {
    text.Begin();
    text.Pass(sizes_us);
    text.Op("aten::empty", 10, values_us);
    text.Op("aten::to", 10, 5);
    text.Op(last, 5);
    if (by_loader) text.EndRange("kind=loader enumerate(DataLoader)");
    text.Op("aten::mm", 10'000);
    text.EndStep();
  }
  return text.Analyzed();
}

// Counts the 2 ms for the values and three times as much of the pause before,
// because that pause also has other causes.
TEST(HostCopyOnConvertTest, FiresOnListsOfNumbers) {
  const Report report = OfLists(8'000, 2'000, "aten::lift_fresh");
  ASSERT_FALSE(report.findings.empty());
  const Finding& finding = report.findings.front();
  EXPECT_EQ(finding.id, "host-copy-on-convert");
  EXPECT_EQ(finding.gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding.gain.expected_ms, 8.03, 0.01);
  EXPECT_NE(finding.evidence.find("lists of Python numbers"), std::string::npos)
      << finding.evidence;
  EXPECT_NE(finding.fix_python.find("once, before the loop"),
            std::string::npos);
  // This finding has the rest of the pauses.
  const Finding* rest = Find(report, "python-between-ops");
  ASSERT_NE(rest, nullptr);
  EXPECT_NEAR(rest->gain.expected_ms, 10 - 8.03, 0.01);
}

TEST(HostCopyOnConvertTest, IgnoresOtherPauses) {
  EXPECT_EQ(Find(OfLists(3'000, 2'000, "aten::add"), "host-copy-on-convert"),
            nullptr);
  EXPECT_EQ(
      Find(OfLists(3'000, 50, "aten::lift_fresh"), "host-copy-on-convert"),
      nullptr);
  EXPECT_EQ(Find(OfLists(3'000, 2'000, "aten::lift_fresh", true),
                 "host-copy-on-convert"),
            nullptr);
}

struct Row {
  int conversions = 16;
  int64_t pause_us = 10;   // before each but the first
  std::string other = "";  // an op before each but the first
  bool by_loader = false;
};

// Steps of about 11 ms, in which a row of torch.tensor() calls converts one
// small list each.
Report OfARow(const Row& row) {
  CpuText text;
  for (int step = 0; step < 6; ++step) {
    text.Begin();
    for (int i = 0; i < row.conversions; ++i) {
      if (i > 0 && !row.other.empty()) text.Op(row.other, 5);
      if (i > 0) text.Pass(row.pause_us);
      text.Op("aten::empty", 10, 5);
      text.Op("aten::to", 5, 5);
      text.Op("aten::lift_fresh", 5, 5);
      text.Op("aten::detach_", 5);
    }
    if (row.by_loader) text.EndRange("kind=loader enumerate(DataLoader)");
    text.Op("aten::mm", 10'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(HostCopyOnConvertTest, FiresOnALoopOfSmallLists) {
  const Report report = OfARow({});
  const Finding* finding = Find(report, "host-copy-on-convert");
  ASSERT_NE(finding, nullptr);
  // 15 conversions of 50 us, and the last two ops of the first one.
  EXPECT_NEAR(finding->gain.expected_ms, 15 * 0.05 + 0.015, 0.001);
  // A pause may be as long as the framework's own code takes.
  EXPECT_NE(Find(OfARow({.pause_us = 50}), "host-copy-on-convert"), nullptr);
}

TEST(HostCopyOnConvertTest, IgnoresSmallListsOutsideOfALoop) {
  const auto fires = [](const Row& row) {
    return Find(OfARow(row), "host-copy-on-convert") != nullptr;
  };
  EXPECT_FALSE(fires({.conversions = 15}));
  EXPECT_FALSE(fires({.pause_us = 51}));
  EXPECT_FALSE(fires({.other = "aten::add"}));
  EXPECT_FALSE(fires({.by_loader = true}));
}

TEST(HostCopyOnConvertTest, CannotLookWithoutShapes) {
  EXPECT_NE(WhySkipped(Analyze(TraceFromText(R"(
              step 0..1000 thread=0 number=0
              op 0..900 thread=0 aten::mm
            )")),
                       "host-copy-on-convert"),
            "");
}

}  // namespace
}  // namespace stepscope::input_types_test
