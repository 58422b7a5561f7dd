// Tests the Trace tables that only the CUPTI collector fills.
#include <gtest/gtest.h>
#include <stepscope/trace_builder.h>

#include "support/trace_copy.h"

namespace stepscope::device_tables_test {
namespace {

Trace WithDeviceRows(TraceBuilder& builder) {
  builder.Add(Stream{.id = 7, .context = 1, .name = builder.Intern("main")});
  builder.Add(DeviceMemory{.time_ns = 300, .bytes = -8});
  builder.Add(DeviceMemory{
      .time_ns = 100, .name = builder.Intern("alloc"), .bytes = 8});
  builder.Add(DeviceSample{.time_ns = 200, .free_bytes = 5});
  builder.Add(DeviceSample{.time_ns = 50, .sm_clock_mhz = 1000});
  Kernel kernel;
  kernel.begin_ns = 100;
  kernel.end_ns = 200;
  kernel.queued_ns = 60;
  builder.Add(kernel);
  builder.Watch(Kind::kDeviceSample);
  return builder.Build();
}

TEST(DeviceTablesTest, RowsAreSortedByTime) {
  TraceBuilder builder;
  const Trace trace = WithDeviceRows(builder);
  ASSERT_EQ(trace.device_memory().size(), 2u);
  EXPECT_EQ(trace.device_memory()[0].time_ns, 100);
  ASSERT_EQ(trace.device_samples().size(), 2u);
  EXPECT_EQ(trace.device_samples()[0].time_ns, 50);
  EXPECT_EQ(trace.name(trace.streams()[0].name), "main");
}

TEST(DeviceTablesTest, ACopyOfTheTraceHasThemAll) {
  TraceBuilder builder;
  const Trace trace = WithDeviceRows(builder);
  TraceBuilder again;
  again.Intern("shifts the name ids");
  AddAll(trace, again);
  const Trace copy = again.Build();
  EXPECT_TRUE(copy.watched(Kind::kDeviceSample));
  EXPECT_EQ(copy.name(copy.device_memory()[0].name), "alloc");
  EXPECT_EQ(copy.name(copy.streams()[0].name), "main");
  EXPECT_EQ(copy.device_samples().size(), 2u);
  EXPECT_EQ(copy.kernels()[0].queued_ns, 60);
}

TEST(DeviceTablesTest, AShiftMovesThemButNotUnknownTimes) {
  TraceBuilder builder;
  Kernel kernel;
  kernel.queued_ns = 60;
  builder.Add(kernel);
  builder.Add(DeviceMemory{.time_ns = 1});
  builder.Add(DeviceSample{.time_ns = 2});
  builder.ShiftTimes(1000);
  const Trace trace = builder.Build();
  EXPECT_EQ(trace.kernels()[0].queued_ns, 1060);
  EXPECT_EQ(trace.kernels()[0].submitted_ns, -1);
  EXPECT_EQ(trace.device_memory()[0].time_ns, 1001);
  EXPECT_EQ(trace.device_samples()[0].time_ns, 1002);
}

TEST(DeviceTablesTest, TheWindowClipsThem) {
  TraceBuilder builder;
  builder.Add(Step{.begin_ns = 100, .end_ns = 200, .number = 4});
  for (const int64_t at : {99, 100, 199, 200}) {
    builder.Add(DeviceMemory{.time_ns = at});
    builder.Add(DeviceSample{.time_ns = at});
  }
  // A sample taken shortly after its step ended.
  builder.Add(DeviceSample{.time_ns = 205, .step = 4});
  builder.Add(DeviceSample{.time_ns = 150, .step = 3});
  const Trace trace =
      builder.Build({.window_begin_ns = 100, .window_end_ns = 200});
  EXPECT_EQ(trace.device_memory().size(), 2u);
  ASSERT_EQ(trace.device_samples().size(), 3u);
  EXPECT_EQ(trace.device_samples()[2].step, 4);
}

}  // namespace
}  // namespace stepscope::device_tables_test
