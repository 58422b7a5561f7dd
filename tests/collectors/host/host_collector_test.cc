#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/clock.h>
#include <stepscope/collectors.h>
#include <stepscope/slot_walk.h>
#include <stepscope/trace_builder.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "support/temp_folder.h"

namespace stepscope::host_collector_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Trace Build(Collector& collector) {
  auto recording = collector.Stop();
  EXPECT_TRUE(recording.ok()) << recording.status();
  const ClockReading now = ReadClock();
  TraceBuilder builder;
  (*recording)->AddTo(builder, ClockMap(now, now), SlotLog());
  return builder.Build();
}

void Burn(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  volatile int64_t sum = 0;
  while (std::chrono::steady_clock::now() < end) sum = sum + 1;
}

TEST(HostCollectorTest, CountsTheWorkOfAStepHere) {
  const auto collector = MakeHostCollector();
  ASSERT_TRUE(collector->Start().ok());
  Burn(std::chrono::milliseconds(20));
  collector->OnStep(7, NowNs());
  usleep(20'000);
  collector->OnStep(8, NowNs());
  const Trace trace = Build(*collector);
  EXPECT_TRUE(trace.watched(Kind::kHostUsage));
  EXPECT_GT(trace.run().usable_cores, 0);
  ASSERT_THAT(trace.host_usage(), SizeIs(2));
  const HostUsage& busy = trace.host_usage()[0];
  const HostUsage& idle = trace.host_usage()[1];
  EXPECT_EQ(busy.step, 7);
  EXPECT_EQ(idle.step, 8);
  EXPECT_EQ(busy.end_ns, idle.begin_ns);
  EXPECT_GT(busy.training_thread_cpu_ns, 0);
  // The thread cannot have run for longer than the step, and sleeping takes no
  // CPU time.
  EXPECT_LE(busy.training_thread_cpu_ns,
            busy.end_ns - busy.begin_ns + 1'000'000);
  EXPECT_LT(idle.training_thread_cpu_ns, 15'000'000);
  // The clocks are read one after the other.
  EXPECT_GE(busy.process_cpu_ns + 1'000'000, busy.training_thread_cpu_ns);
}

TEST(HostCollectorTest, ReadsARecordedMachine) {
  TempFolder machine;
  machine.Write("proc/self/status", "Cpus_allowed_list:\t0-3\n");
  machine.Write("proc/cpuinfo", "model name\t: Recorded CPU\n");
  machine.Write("proc/thread-self/schedstat", "1000 200 5\n");
  machine.Write("proc/self/io", "read_bytes: 0\nwrite_bytes: 10\n");
  const auto collector = MakeHostCollector({.root = machine.path().string()});
  ASSERT_TRUE(collector->Start().ok());
  machine.Write("proc/thread-self/schedstat", "5000 950 9\n");
  machine.Write("proc/self/io", "read_bytes: 4096\nwrite_bytes: 10\n");
  collector->OnStep(0, NowNs());
  const Trace trace = Build(*collector);
  EXPECT_EQ(trace.run().usable_cores, 4);
  EXPECT_EQ(trace.run().cpu_model, "Recorded CPU");
  ASSERT_THAT(trace.host_usage(), SizeIs(1));
  EXPECT_EQ(trace.host_usage()[0].run_delay_ns, 750);
  EXPECT_EQ(trace.host_usage()[0].read_bytes, 4096);
  EXPECT_EQ(trace.host_usage()[0].write_bytes, 0);
}

TEST(HostCollectorTest, WhatIsUsedInAPauseBelongsToNoStep) {
  TempFolder machine;
  const auto delay = [&](const std::string& ns) {
    machine.Write("proc/thread-self/schedstat", "1000 " + ns + " 5\n");
  };
  delay("0");
  const auto collector = MakeHostCollector({.root = machine.path().string()});
  ASSERT_TRUE(collector->Start().ok());
  for (const int step : {3, 4}) {
    collector->Pause();
    delay(std::to_string(1000 * step));
    collector->Resume();
    delay(std::to_string(1000 * step + 10 * step));
    collector->OnStep(step, NowNs());
  }
  const Trace trace = Build(*collector);
  ASSERT_THAT(trace.host_usage(), SizeIs(2));
  EXPECT_EQ(trace.host_usage()[0].step, 3);
  EXPECT_EQ(trace.host_usage()[0].run_delay_ns, 30);
  EXPECT_EQ(trace.host_usage()[1].run_delay_ns, 40);
}

TEST(HostCollectorTest, WithoutProcItIsUnavailableAndSaysWhatIsMissing) {
  const auto collector = MakeHostCollector({.root = "/nonexistent"});
  const absl::Status started = collector->Start();
  EXPECT_TRUE(absl::IsUnavailable(started));
  EXPECT_THAT(std::string(started.message()),
              HasSubstr("cannot read /nonexistent/proc"));
}

TEST(HostCollectorTest, StartsAfreshInEachCycle) {
  const auto collector = MakeHostCollector();
  for (int cycle = 0; cycle < 2; ++cycle) {
    ASSERT_TRUE(collector->Start().ok());
    collector->OnStep(cycle, NowNs());
    const Trace trace = Build(*collector);
    ASSERT_THAT(trace.host_usage(), SizeIs(1));
    EXPECT_EQ(trace.host_usage()[0].step, cycle);
  }
}

}  // namespace
}  // namespace stepscope::host_collector_test
