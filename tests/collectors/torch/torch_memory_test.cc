#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <map>

#include "torch_window.h"

namespace stepscope::torch_memory_test {
namespace {

using testing::SizeIs;

TEST(TorchMemoryTest, RecordsAllocationsAndTheirReleases) {
  TorchWindow window({.record_memory = true});
  { const at::Tensor a = at::empty({1000}); }
  const Trace trace = window.CloseAndBuild();
  ASSERT_THAT(trace.allocations(), SizeIs(2));
  const Allocation& alloc = trace.allocations()[0];
  const Allocation& free = trace.allocations()[1];
  EXPECT_EQ(alloc.bytes, 4000);
  EXPECT_EQ(free.bytes, -4000);
  EXPECT_EQ(alloc.address, free.address);
  EXPECT_EQ(alloc.device_type, 0);
  EXPECT_EQ(alloc.device, -1);
  EXPECT_EQ(alloc.other, 1u);
  EXPECT_EQ(free.other, 0u);
  EXPECT_EQ(alloc.total_allocated_bytes - free.total_allocated_bytes, 4000);
  ASSERT_NE(alloc.op, kNone);
  EXPECT_EQ(trace.name(trace.ops()[alloc.op].name), "aten::empty");
  EXPECT_EQ(free.op, kNone);
}

TEST(TorchMemoryTest, TotalsFollowTheSumOfEvents) {
  TorchWindow window({.record_memory = true});
  std::vector<at::Tensor> kept;
  for (int i = 1; i < 20; ++i) {
    kept.push_back(at::empty({i * 100}));
    if (i % 3 == 0) kept.erase(kept.begin());
  }
  kept.clear();
  const Trace trace = window.CloseAndBuild();
  ASSERT_GT(trace.allocations().size(), 20u);
  int64_t sum = 0;
  const int64_t start = trace.allocations()[0].total_allocated_bytes -
                        trace.allocations()[0].bytes;
  for (const Allocation& event : trace.allocations()) {
    sum += event.bytes;
    EXPECT_EQ(event.total_allocated_bytes, start + sum);
  }
  EXPECT_EQ(sum, 0);
}

TEST(TorchMemoryTest, RecordsTheAllocationsOfABackwardPass) {
  at::Tensor x = at::ones({4, 8}).requires_grad_(true);
  TorchWindow window({.record_memory = true});
  torch::autograd::backward({x.mul(2).relu().sum()}, {});
  const Trace trace = window.CloseAndBuild();
  bool in_backward = false;
  for (const Allocation& event : trace.allocations()) {
    for (RowId op = event.op; op != kNone; op = trace.ops()[op].parent) {
      in_backward |= trace.ops()[op].kind == OpKind::kBackward;
    }
  }
  EXPECT_TRUE(in_backward);
}

TEST(TorchMemoryTest, IsOffUnlessAskedFor) {
  TorchWindow window;
  at::empty({1000});
  const Trace trace = window.CloseAndBuild();
  EXPECT_TRUE(trace.allocations().empty());
}

TEST(TorchMemoryTest, MarksWhereAnAllocatorRanOutOfMemory) {
  TorchWindow window({.record_memory = true});
  c10::reportOutOfMemoryToProfiler(4096, 700, 900,
                                   c10::Device(c10::DeviceType::CUDA, 1));
  const Trace trace = window.CloseAndBuild();
  ASSERT_THAT(trace.ranges(), SizeIs(1));
  const Range& mark = trace.ranges()[0];
  EXPECT_EQ(trace.name(mark.name), "out of memory");
  EXPECT_EQ(trace.name(mark.detail),
            "device=1, asked_bytes=4096, allocated_bytes=700, "
            "reserved_bytes=900");
  EXPECT_TRUE(trace.allocations().empty());
}

TEST(TorchMemoryTest, LeavesTheReportingSlotAsItFoundIt) {
  {
    TorchWindow window({.record_memory = true});
    // LibTorch asks the slot whether a profiler is active. The answer must be
    // no.
    EXPECT_FALSE(torch::profiler::impl::profilerEnabled());
    EXPECT_EQ(torch::profiler::impl::profilerType(),
              torch::profiler::impl::ActiveProfilerType::NONE);
    window.CloseAndBuild();
  }
  EXPECT_EQ(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE),
            nullptr);
}

TEST(TorchMemoryTest, RecordsOperatorsWhereAnotherProfilerTakesTheMemory) {
  using namespace torch::autograd::profiler;
  const ProfilerConfig config(ProfilerState::KINETO);
  prepareProfiler(config, {ActivityType::CPU});
  enableProfiler(config, {ActivityType::CPU});
  TorchWindow window({.record_memory = true});
  at::ones({4});
  const Trace trace = window.CloseAndBuild();
  disableProfiler();
  EXPECT_THAT(OpsNamed(trace, "aten::ones"), SizeIs(1));
  EXPECT_TRUE(trace.allocations().empty());
  EXPECT_FALSE(trace.run().profile_memory);
  ASSERT_THAT(trace.losses(), SizeIs(1));
  EXPECT_EQ(trace.losses()[0].name, "memory-hook-taken");
}

TEST(TorchMemoryTest, SaysWhenAScopeTookTheHookAway) {
  class Nothing : public c10::DebugInfoBase {};
  auto scope = std::make_unique<c10::DebugInfoGuard>(
      c10::DebugInfoKind::TEST_INFO, std::make_shared<Nothing>());
  TorchWindow window({.record_memory = true});
  scope.reset();
  const Trace trace = window.CloseAndBuild();
  ASSERT_THAT(trace.losses(), SizeIs(1));
  EXPECT_EQ(trace.losses()[0].name, "memory-hook-lost");
}

}  // namespace
}  // namespace stepscope::torch_memory_test
