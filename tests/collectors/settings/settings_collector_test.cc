#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/clock.h>
#include <stepscope/collectors.h>
#include <stepscope/slot_walk.h>
#include <stepscope/trace_builder.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <functional>
#include <memory>
#include <vector>

#include "settings_decode.h"

namespace stepscope::settings_collector_test {
namespace {

using ::testing::SizeIs;

// One reading of the settings, taken inside `around`.
struct Reading {
  Trace trace;
  const Settings& row() const { return trace.settings()[0]; }
};

Reading Read() {
  const auto collector = MakeSettingsCollector();
  EXPECT_TRUE(collector->Start().ok());
  collector->OnStep(5, 1234);
  auto recording = collector->Stop();
  EXPECT_TRUE(recording.ok());
  const ClockReading now = ReadClock();
  TraceBuilder builder;
  (*recording)->AddTo(builder, ClockMap(now, now), SlotLog());
  Reading reading{builder.Build()};
  EXPECT_THAT(reading.trace.settings(), SizeIs(1));
  return reading;
}

TEST(SettingsCollectorTest, ReadsTheDefaults) {
  const Reading reading = Read();
  EXPECT_TRUE(reading.trace.watched(Kind::kSettings));
  EXPECT_EQ(reading.row().step, 5);
  EXPECT_EQ(reading.row().time_ns, 1234);
  EXPECT_EQ(reading.row().grad_mode, 1);
  EXPECT_EQ(reading.row().inference_mode, 0);
  EXPECT_EQ(reading.row().anomaly_mode, 0);
  EXPECT_EQ(reading.row().autocast_cpu, 0);
  EXPECT_EQ(reading.row().autocast_dtype, 0u);
  EXPECT_EQ(reading.row().cudnn_benchmark, 0);
  EXPECT_EQ(reading.row().deterministic, 0);
  EXPECT_EQ(reading.trace.name(reading.row().matmul_precision), "highest");
  EXPECT_GT(reading.row().intra_op_threads, 0);
  EXPECT_GT(reading.row().inter_op_threads, 0);
  EXPECT_FALSE(reading.trace.run().torch_version.empty());
}

TEST(SettingsCollectorTest, SeesTheModesOfTheThread) {
  {
    const c10::NoGradGuard guard;
    EXPECT_EQ(Read().row().grad_mode, 0);
  }
  {
    const c10::InferenceMode guard;
    EXPECT_EQ(Read().row().inference_mode, 1);
  }
  torch::autograd::AnomalyMode::set_enabled(true, false);
  EXPECT_EQ(Read().row().anomaly_mode, 1);
  torch::autograd::AnomalyMode::set_enabled(false, false);
}

TEST(SettingsCollectorTest, NamesTheTypeThatAutocastUses) {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const Reading reading = Read();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(reading.row().autocast_cpu, 1);
  EXPECT_EQ(reading.trace.name(reading.row().autocast_dtype), "c10::BFloat16");
}

TEST(SettingsCollectorTest, SeesTheProcessWideSwitches) {
  at::Context& context = at::globalContext();
  context.setBenchmarkCuDNN(true);
  context.setDeterministicAlgorithms(true, true);
  const Reading reading = Read();
  context.setBenchmarkCuDNN(false);
  context.setDeterministicAlgorithms(false, false);
  EXPECT_EQ(reading.row().cudnn_benchmark, 1);
  EXPECT_EQ(reading.row().deterministic, 1);
}

TEST(SettingsCollectorTest, SeesTheThreadsThatWereAskedFor) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  EXPECT_EQ(Read().row().intra_op_threads, 2);
  at::set_num_threads(before);
}

TEST(SettingsDecodeTest, WhatLibTorchWouldNotSayStaysUnknown) {
  TraceBuilder builder;
  const std::vector<SettingsSample> samples(1);
  AddSettings(samples, builder);
  const Trace trace = builder.Build();
  ASSERT_THAT(trace.settings(), SizeIs(1));
  EXPECT_EQ(trace.settings()[0].grad_mode, -1);
  EXPECT_EQ(trace.settings()[0].tf32_cublas, -1);
  EXPECT_EQ(trace.settings()[0].matmul_precision, 0u);
}

}  // namespace
}  // namespace stepscope::settings_collector_test
