// Tests launch lags on made-up recordings.
#include "gpu/launch_lags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/trace_builder.h>

namespace stepscope::launch_lags_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Returns calls that are 1 us apart, each with a kernel after the given lag.
Trace KernelsAfter(const std::vector<int64_t>& lags, int64_t graph = 0) {
  TraceBuilder builder;
  const RowId thread = builder.ThreadRow(/*pid=*/1, /*tid=*/1);
  int64_t now = 1'000'000;
  int64_t correlation = 0;
  for (const int64_t lag : lags) {
    builder.Add(RuntimeCall{.begin_ns = now,
                            .end_ns = now + 500,
                            .correlation = ++correlation,
                            .name = builder.Intern("cudaLaunchKernel"),
                            .thread = thread});
    Kernel kernel;
    kernel.begin_ns = now + lag;
    kernel.end_ns = kernel.begin_ns + 10;
    kernel.correlation = correlation;
    kernel.name = builder.Intern("gemm");
    kernel.graph = graph;
    builder.Add(kernel);
    now += 1'000;
  }
  return builder.Build();
}

TEST(LaunchLagsTest, AreThoseOfKernelsWithARecordedCallInOrder) {
  EXPECT_THAT(LaunchLagsNs(KernelsAfter({700, -300, 900})),
              ElementsAre(-300, 700, 900));
  EXPECT_THAT(LaunchLagsNs(KernelsAfter({700}, /*graph=*/3)), IsEmpty());
  TraceBuilder builder;
  Kernel kernel;
  kernel.begin_ns = 5;
  kernel.end_ns = 6;
  builder.Add(kernel);
  EXPECT_THAT(LaunchLagsNs(builder.Build()), IsEmpty());
}

TEST(LaunchLagsTest, AQuantileLeavesOutAFewEarlyKernels) {
  std::vector<int64_t> lags(99, 4'000);
  lags.insert(lags.begin(), -9'000);
  EXPECT_EQ(LagQuantileNs(lags, 0), -9'000);
  EXPECT_EQ(LagQuantileNs(lags, 0.05), 4'000);
  lags.assign(100, -9'000);
  EXPECT_EQ(LagQuantileNs(lags, 0.05), -9'000);
  EXPECT_EQ(LagQuantileNs({7}, 1), 7);
}

TEST(LaunchLagsTest, TheTextHasTheDistribution) {
  EXPECT_THAT(LagText({-300, 700, 900}),
              HasSubstr("1 of 3 kernels begin before their call; least -300 "
                        "ns, 1 % -300 ns"));
  EXPECT_THAT(LagText({-300, 700, 900}), HasSubstr("50 % 700 ns"));
  EXPECT_THAT(LagText({-300, 700, 900}), HasSubstr("most 900 ns"));
  EXPECT_EQ(LagText({}), "no kernel has a recorded call");
}

}  // namespace
}  // namespace stepscope::launch_lags_test
