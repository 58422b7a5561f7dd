// Tests recordings that only slot.sh makes: several windows and recorders in
// one process, many threads, full buffers, CUDA graphs. Skipped without these
// recordings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/read.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "gpu/compare_work.h"
#include "gpu/gpu_stages.h"
#include "gpu/recorded_parts.h"

namespace stepscope::gpu_parts_test {
namespace {

using testing::IsEmpty;
using testing::Not;

class GpuPartsTest : public testing::Test {
 protected:
  // Returns the traces of a part whose names contain `word`.
  static std::vector<Trace> TracesOf(const std::string& part,
                                     const std::string& word) {
    std::vector<Trace> traces;
    const auto folder = FolderOfPart(part);
    if (!folder) return traces;
    for (const std::string& file : FilesWith(*folder, word)) {
      absl::StatusOr<Trace> trace = ReadTrace(file);
      EXPECT_TRUE(trace.ok()) << trace.status();
      if (trace.ok()) traces.push_back(*std::move(trace));
    }
    return traces;
  }
  void SetUp() override {
    if (!FolderOfPart("")) {
      GTEST_SKIP() << "skipped: on a machine with a GPU, bash "
                      "tests/gpu/slot.sh records what this test judges";
    }
  }

  static void ExpectNothingMissing(const Trace& trace) {
    for (const Loss& loss : trace.losses()) {
      EXPECT_EQ(loss.severity, Severity::kNote)
          << loss.name << ": " << loss.detail;
    }
    EXPECT_THAT(trace.kernels(), Not(IsEmpty()));
  }
  // Checks that both traces have the same kernels, copies and memsets; times
  // may differ.
  static void ExpectSameWork(std::vector<Trace> traces) {
    ASSERT_EQ(traces.size(), 2u);
    const Trace second = std::move(traces.back());
    traces.pop_back();
    const CompareOptions counts_only = {.least_repeats = 1'000'000'000};
    EXPECT_THAT(DifferencesInWork(second, traces, counts_only), IsEmpty());
  }
};

TEST_F(GpuPartsTest, OfTheSameStepsInOneProcessOursIsKinetos) {
  const std::vector<Trace> ours = TracesOf("same", "_ours.");
  ASSERT_EQ(ours.size(), 1u);
  ExpectNothingMissing(ours.front());
  if (IsFake()) GTEST_SKIP() << "a fake CUPTI leaves no records for Kineto";
  const std::vector<Trace> kineto = TracesOf("same", "_kineto.");
  ASSERT_EQ(kineto.size(), 2u);
  EXPECT_THAT(DifferencesInWork(ours.front(), kineto), IsEmpty());
}

TEST_F(GpuPartsTest, TwoWindowsOfOneProfileHaveTheSameWork) {
  std::vector<Trace> windows = TracesOf("windows", "_windows_c");
  for (const Trace& trace : windows) ExpectNothingMissing(trace);
  ExpectSameWork(std::move(windows));
}

TEST_F(GpuPartsTest, TwoProfilesOfOneProcessHaveTheSameWork) {
  std::vector<Trace> windows = TracesOf("windows", "_ours.");
  for (const Trace& trace : windows) ExpectNothingMissing(trace);
  ExpectSameWork(std::move(windows));
}

TEST_F(GpuPartsTest, EachThreadsLaunchesAreThere) {
  const std::vector<Trace> traces = TracesOf("threads", "_threads.");
  ASSERT_EQ(traces.size(), 1u);
  ExpectNothingMissing(traces.front());
  std::map<RowId, int> by_thread;
  for (const Kernel& kernel : traces.front().kernels()) {
    ASSERT_NE(kernel.call, kNone);
    ++by_thread[traces.front().runtime_calls()[kernel.call].thread];
  }
  const auto busy = std::ranges::count_if(by_thread, [](const auto& thread) {
    return thread.second >= kLaunchesPerThread;
  });
  EXPECT_EQ(busy, kLaunchingThreads);
}

TEST_F(GpuPartsTest, WhatFullBuffersLoseIsSaid) {
  const std::vector<Trace> traces = TracesOf("overflow", "_overflow.");
  ASSERT_EQ(traces.size(), 1u);
  const Trace& trace = traces.front();
  EXPECT_THAT(trace.kernels(), Not(IsEmpty()));
  EXPECT_LT(trace.kernels().size(), static_cast<size_t>(kOverflowLaunches));
  EXPECT_TRUE(std::ranges::any_of(trace.losses(), [](const Loss& loss) {
    return loss.severity != Severity::kNote && loss.count != 0;
  }));
}

// From the second window on, CUPTI 13.0 may give kernels of graphs wrong
// correlations (pytorch/kineto#1165). Such a kernel belongs to no call. Its
// operators come from the capture, which was seen before the first window.
TEST_F(GpuPartsTest, KernelsOfGraphsBelongToGraphLaunchesInBothWindows) {
  std::vector<Trace> windows = TracesOf("graphs", "graphs_c");
  ASSERT_EQ(windows.size(), 2u);
  for (const Trace& trace : windows) ExpectNothingMissing(trace);
  if (IsFake()) GTEST_SKIP() << "the CPU has no CUDA graphs";
  for (const Trace& trace : windows) {
    int64_t of_graphs = 0;
    int64_t with_ops = 0;
    for (const Kernel& kernel : trace.kernels()) {
      if (kernel.graph == 0) continue;
      ++of_graphs;
      with_ops += kernel.captured_ops != kNone;
      if (kernel.call == kNone) continue;
      const RuntimeCall& call = trace.runtime_calls()[kernel.call];
      EXPECT_NE(trace.name(call.name).find("GraphLaunch"),
                std::string_view::npos)
          << trace.name(call.name);
    }
    EXPECT_GT(of_graphs, 0);
    EXPECT_GT(with_ops, 0);
    std::printf("%lld of %lld kernels of graphs have the ops of the capture\n",
                static_cast<long long>(with_ops),
                static_cast<long long>(of_graphs));
  }
  ExpectSameWork(std::move(windows));
}

}  // namespace
}  // namespace stepscope::gpu_parts_test
