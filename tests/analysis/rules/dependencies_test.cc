#include "rule_testing.h"
#include "support/gpu_text.h"

namespace stepscope::dependencies_test {
namespace {

// Five GPU-bound steps of two kernels with a gap of `gap_us`. Both kernels were
// launched before the first one ran.
Report Gapped(double gap_us, int first_stream, std::string_view first = "gemm",
              std::string_view fields = "") {
  std::string text;
  int64_t id = 0;
  for (int step = 0; step < 5; ++step) {
    const int64_t t = step * 10'000'000;
    const auto work = [&](int64_t launch, int64_t begin, int64_t end,
                          int stream, std::string_view name,
                          std::string_view more) {
      ++id;
      text += "runtime_call " + std::to_string(t + launch) + ".." +
              std::to_string(t + launch + 1000) +
              " thread=0 correlation=" + std::to_string(id) +
              (more.empty() ? " cudaLaunchKernel" : " cudaGraphLaunch") +
              "\nkernel " + std::to_string(t + begin) + ".." +
              std::to_string(t + end) + " stream=" + std::to_string(stream) +
              " correlation=" + std::to_string(id) + " " + std::string(more) +
              " " + std::string(name) + "\n";
    };
    const auto gap = static_cast<int64_t>(gap_us * 1000);
    text += "step " + std::to_string(t) + ".." +
            std::to_string(t + 10'000'000) +
            " thread=0 number=" + std::to_string(step) + "\n";
    work(0, 2000, 5'000'000, first_stream, first, "");
    work(2000, 5'000'000 + gap, 10'000'000, 7, "relu", fields);
  }
  return Analyze(TraceFromText(text));
}

TEST(DependencyStallTest, FiresBehindAnotherStreamAndNamesBoth) {
  const Report report = Gapped(500, 20, "ncclDevKernel_AllReduce");
  const Finding* finding = Find(report, "dependency-stall");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_NE(finding->where.find("ncclDevKernel_AllReduce on stream 20, before "
                                "relu on stream 7"),
            std::string::npos)
      << finding->where;
  EXPECT_NE(finding->evidence.find("0.50 ms of the 10.0 ms"), std::string::npos)
      << finding->evidence;
}

TEST(DependencyStallTest, FiresFromThreePerCentOfTheStep) {
  // The step takes at least 3.4 ms, so that the minimum of 0.1 ms does not
  // decide.
  const auto with = [](int gaps) {
    std::string text;
    int64_t id = 0, t = 0;
    for (int step = 0; step < 3; ++step) {
      const int64_t begin = t;
      for (int i = 0; i < 100; ++i) {
        const int64_t gap = i < gaps ? 50'000 : 0;
        ++id;
        text += "runtime_call " + std::to_string(begin + i * 100) + ".." +
                std::to_string(begin + i * 100 + 50) +
                " thread=0 correlation=" + std::to_string(id) +
                " cudaLaunchKernel\nkernel " + std::to_string(t + gap) + ".." +
                std::to_string(t + 100'000) +
                " stream=" + std::to_string(7 + i % 2) +
                " correlation=" + std::to_string(id) + " k\n";
        t += 100'000;
      }
      text += "step " + std::to_string(begin) + ".." + std::to_string(t) +
              " thread=0 number=" + std::to_string(step) + "\n";
    }
    return Analyze(TraceFromText(text));
  };
  EXPECT_TRUE(IsClean(with(5), "dependency-stall"));
  EXPECT_FALSE(IsClean(with(8), "dependency-stall"));
}

TEST(DependencyStallTest, IgnoresShortGaps) {
  EXPECT_TRUE(IsClean(Gapped(10, 20), "dependency-stall"));
}

TEST(DependencyStallTest, IgnoresGapsWithinOneStream) {
  EXPECT_TRUE(IsClean(Gapped(500, 7), "dependency-stall"));
}

TEST(DependencyStallTest, DoesNotClaimGapsBeforeGraphNodes) {
  EXPECT_TRUE(IsClean(Gapped(500, 20, "gemm", "graph=3"), "dependency-stall"));
}

}  // namespace
}  // namespace stepscope::dependencies_test
