#include "host_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace stepscope::host_decode_test {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Io(int64_t read, int64_t written) {
  return "rchar: 1\nread_bytes: " + std::to_string(read) +
         "\nwrite_bytes: " + std::to_string(written) +
         "\ncancelled_write_bytes: 0\n";
}

// Writes samples one after the other, as the hook does.
class Machine {
 public:
  HostSample& Sample(int64_t step, int64_t time_ns) {
    HostSample& sample = samples_.samples.emplace_back();
    sample.step = step;
    sample.time_ns = time_ns;
    sample.children_known = true;
    sample.first_worker = static_cast<uint32_t>(samples_.workers.size());
    return sample;
  }
  void Worker(int64_t id, bool is_process, const std::string& schedstat,
              const std::string& io) {
    samples_.workers.push_back({id, is_process, Text(schedstat), Text(io)});
    ++samples_.samples.back().worker_count;
  }
  TextSpan Text(const std::string& text) {
    const auto begin = static_cast<uint32_t>(samples_.text.size());
    samples_.text += text;
    return {begin, static_cast<uint32_t>(samples_.text.size())};
  }
  std::vector<HostUsage> Decode() const { return DecodeHostUsage(samples_); }

 private:
  HostSamples samples_;
};

TEST(HostDecodeTest, GivesTheDifferencesOfEachStep) {
  Machine machine;
  HostSample& first = machine.Sample(-1, 1000);
  first.process_cpu_ns = 10;
  first.thread_cpu_ns = 5;
  first.involuntary_switches = 3;
  first.schedstat = machine.Text("100 40 7\n");
  first.io = machine.Text(Io(4096, 8192));
  HostSample& second = machine.Sample(6, 3000);
  second.process_cpu_ns = 110;
  second.thread_cpu_ns = 65;
  second.involuntary_switches = 4;
  second.schedstat = machine.Text("160 90 9\n");
  second.io = machine.Text(Io(12288, 8192));
  const auto rows = machine.Decode();
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].step, 6);
  EXPECT_EQ(rows[0].begin_ns, 1000);
  EXPECT_EQ(rows[0].end_ns, 3000);
  EXPECT_EQ(rows[0].process_cpu_ns, 100);
  EXPECT_EQ(rows[0].training_thread_cpu_ns, 60);
  EXPECT_EQ(rows[0].involuntary_switches, 1);
  EXPECT_EQ(rows[0].run_delay_ns, 50);
  EXPECT_EQ(rows[0].read_bytes, 8192);
  EXPECT_EQ(rows[0].write_bytes, 0);
  EXPECT_EQ(rows[0].loader_workers, 0);
  EXPECT_EQ(rows[0].loader_cpu_ns, 0);
}

TEST(HostDecodeTest, WhatCouldNotBeReadIsUnknown) {
  Machine machine;
  machine.Sample(-1, 0).children_known = false;
  machine.Sample(0, 10).children_known = false;
  const auto rows = machine.Decode();
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].process_cpu_ns, -1);
  EXPECT_EQ(rows[0].run_delay_ns, -1);
  EXPECT_EQ(rows[0].read_bytes, -1);
  EXPECT_EQ(rows[0].loader_workers, -1);
  EXPECT_EQ(rows[0].loader_cpu_ns, -1);
}

TEST(HostDecodeTest, AKernelThatDoesNotCountRunDelayIsUnknownNotZero) {
  Machine machine;
  machine.Sample(-1, 0).schedstat = machine.Text("0 0 0\n");
  machine.Sample(0, 10).schedstat = machine.Text("0 0 0\n");
  EXPECT_EQ(machine.Decode()[0].run_delay_ns, -1);
}

TEST(HostDecodeTest, AThreadCountsFromItsSecondSample) {
  Machine machine;
  machine.Sample(-1, 0);
  machine.Sample(0, 10);
  machine.Worker(21, false, "5000 0 1", Io(100, 0));
  machine.Sample(1, 20);
  machine.Worker(21, false, "5600 0 1", Io(400, 0));
  machine.Worker(22, false, "9000 0 1", Io(9000, 0));
  const auto rows = machine.Decode();
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0].loader_workers, 1);
  EXPECT_EQ(rows[0].loader_cpu_ns, -1);
  EXPECT_EQ(rows[1].loader_workers, 2);
  EXPECT_EQ(rows[1].loader_cpu_ns, 600);
  EXPECT_EQ(rows[1].loader_read_bytes, 300);
}

TEST(HostDecodeTest, AChildThatBeganInTheStepCountsWhole) {
  Machine machine;
  machine.Sample(-1, 0);
  machine.Sample(0, 10);
  machine.Worker(300, true, "700 0 1", Io(50, 0));
  const auto rows = machine.Decode();
  EXPECT_EQ(rows[0].loader_workers, 1);
  EXPECT_EQ(rows[0].loader_cpu_ns, 700);
  EXPECT_EQ(rows[0].loader_read_bytes, 50);
}

TEST(HostDecodeTest, AReusedIdNeverGivesANegativeTime) {
  Machine machine;
  machine.Sample(-1, 0);
  machine.Worker(300, true, "700 0 1", "");
  machine.Sample(0, 10);
  machine.Worker(300, true, "20 0 1", "");
  EXPECT_EQ(machine.Decode()[0].loader_cpu_ns, -1);
}

TEST(HostDecodeTest, NoSamplesGiveNoRows) {
  EXPECT_THAT(DecodeHostUsage({}), IsEmpty());
  Machine machine;
  machine.Sample(-1, 0);
  EXPECT_THAT(machine.Decode(), IsEmpty());
}

}  // namespace
}  // namespace stepscope::host_decode_test
