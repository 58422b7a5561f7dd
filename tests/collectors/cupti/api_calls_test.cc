#include "api/api_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakes/fake_cupti.h"

namespace stepscope::api_calls_test {
namespace {

TEST(CallNameTest, VersionsAndDefaultStreamVariantsAreDropped) {
  EXPECT_EQ(CallName("cudaLaunchKernel_v7000"), "cudaLaunchKernel");
  EXPECT_EQ(CallName("cudaLaunchKernel_ptsz_v7000"), "cudaLaunchKernel");
  EXPECT_EQ(CallName("cudaMemcpy_ptds_v7000"), "cudaMemcpy");
  EXPECT_EQ(CallName("cuMemcpyHtoDAsync_v2_ptsz"), "cuMemcpyHtoDAsync");
  EXPECT_EQ(CallName("cuMemAlloc_v2"), "cuMemAlloc");
}

TEST(CallNameTest, OtherNamesStayAsTheyAre) {
  EXPECT_EQ(CallName("cuLaunchKernel"), "cuLaunchKernel");
  EXPECT_EQ(CallName("cuMemsetD2D8"), "cuMemsetD2D8");
  EXPECT_EQ(CallName("a_valid"), "a_valid");
  EXPECT_EQ(CallName("a_v"), "a_v");
  EXPECT_EQ(CallName("_v2"), "_v2");
  EXPECT_EQ(CallName(""), "");
}

TEST(CallsWorthRecordingTest, LaunchesCopiesWaitsAndAllocationsAre) {
  for (const char* name :
       {"cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cudaMemcpyAsync",
        "cudaMemcpyPeerAsync", "cudaMemset", "cudaStreamSynchronize",
        "cudaDeviceSynchronize", "cudaEventRecordWithFlags",
        "cudaStreamWaitEvent", "cudaEventSynchronize", "cudaMallocAsync",
        "cudaFreeHost", "cudaGraphLaunch", "cuLaunchKernelEx", "cuMemAlloc",
        "cuCtxSynchronize", "__cudaLaunchKernel"}) {
    EXPECT_TRUE(IsWorthRecording(name)) << name;
  }
}

TEST(CallsWorthRecordingTest, QueriesOfTheStateAreNot) {
  for (const char* name :
       {"cudaGetDevice", "cudaSetDevice", "cudaGetLastError",
        "cudaPeekAtLastError", "cudaStreamIsCapturing", "cudaFuncSetAttribute",
        "cudaEventQuery", "cudaStreamQuery", "cuEventQuery",
        "cudaEventCreateWithFlags", "cudaEventDestroy",
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor", "cuCtxGetCurrent",
        "cuDeviceGetAttribute", ""}) {
    EXPECT_FALSE(IsWorthRecording(name)) << name;
  }
}

TEST(CallsWorthRecordingTest, TheListEndsWhereTheIdsDo) {
  FakeCupti fake;
  const auto api = fake.Api();
  const auto left_out = CallsToLeaveOut(*api, CUPTI_CB_DOMAIN_RUNTIME_API);
  // Finds all IDs, even with gaps of up to 63 between them.
  EXPECT_THAT(left_out, testing::Contains(271u));
  EXPECT_THAT(left_out, testing::Contains(90u));
  EXPECT_THAT(left_out, testing::Not(testing::Contains(211u)));
}

}  // namespace
}  // namespace stepscope::api_calls_test
