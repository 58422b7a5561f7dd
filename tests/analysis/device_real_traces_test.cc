// Replays traces that other people recorded (tests/data/traces/README.md) and
// compares with known results: in a pair, the second trace is the first with a
// fix. Other numbers come from a prototype of the replay.
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/read.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "context/analysis_context.h"
#include "support/real_trace_path.h"

namespace stepscope::device_real_traces_test {
namespace {

class DeviceRealTracesTest : public testing::TestWithParam<std::string> {
 protected:
  // Skips the test if the trace is missing.
  void Read(const std::string& name, const auto& test) {
    const std::string path = RealTracePath(name);
    if (path.empty()) {
      GTEST_SKIP() << name << " is not committed and not in ../shared/traces; "
                   << "STEPSCOPE_TRACES can name its folder";
    }
    const absl::StatusOr<Trace> trace = ReadTrace(path);
    ASSERT_TRUE(trace.ok()) << trace.status().message();
    test(AnalysisContext(*trace));
  }

  static double After(const AnalysisContext& m, const Edit& edit) {
    return m.replay.StepNs(edit) * 1e-6;
  }
};

// Returns runtime calls whose name contains one of these words.
std::vector<RowId> Calls(const AnalysisContext& m,
                         std::initializer_list<std::string_view> words) {
  std::vector<RowId> rows;
  for (RowId row = 0; row < m.trace.runtime_calls().size(); ++row) {
    const RuntimeCall& call = m.trace.runtime_calls()[row];
    for (std::string_view word : words) {
      if (m.trace.name(call.name).find(word) != std::string_view::npos) {
        rows.push_back(row);
      }
    }
  }
  return rows;
}

class SpeakingTest : public DeviceRealTracesTest {};

TEST_P(SpeakingTest, ReplayIsValid) {
  Read(GetParam(), [](const AnalysisContext& m) {
    const ReplayCheck& check = m.replay.check();
    EXPECT_TRUE(check.valid) << check.why_not;
    EXPECT_NEAR(check.no_edit_error, 0, 0.02);
    EXPECT_NEAR(check.limit_error, 0, 0.05);
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, SpeakingTest,
    testing::Values("resnet50_v100_workers0.pt.trace.json.gz",
                    "resnet50_v100_workers4.pt.trace.json.gz",
                    "h2d_a100_pinned.json.gz", "h2d_a100_pageable.json.gz",
                    "ddp_resnet_a100_rank0of2.json.gz",
                    "recsys_a100_rank3of8.json.gz",
                    "ddp_resnet_mi300x_rank0of8.json.gz", "owlv2_h100.json.gz",
                    "flux_mi300x_large.json.gz"),
    [](const auto& test) {
      return test.param.substr(0, test.param.find('.'));
    });

// Most of this recording loads libraries, so it is not judged as one step
// either.
TEST_F(DeviceRealTracesTest, ReplayRefusesARecordingOfStartingUp) {
  Read("alexnet_a100_cuda_sync.json.gz", [](const AnalysisContext& m) {
    EXPECT_TRUE(m.steps.empty());
    EXPECT_FALSE(m.replay.check().valid);
    const Report report = Analyze(m.trace);
    ASSERT_FALSE(report.findings.empty());
    EXPECT_NE(report.findings[0].evidence.find("Starting up takes 4"),
              std::string::npos)
        << report.findings[0].evidence;
  });
}

TEST_F(DeviceRealTracesTest, ARecordingWithoutStepsIsReplayedWhole) {
  Read("part_a100_bs2.json.gz", [](const AnalysisContext& m) {
    EXPECT_TRUE(m.steps.is_recording);
    EXPECT_TRUE(m.replay.check().valid) << m.replay.check().why_not;
  });
}

// Batches of 128 and of 2 take 30.9 and 31.9 ms, so launches set the time.
TEST_F(DeviceRealTracesTest, LaunchesAreTheGainOfASmallBatch) {
  Read("part_a100_bs2.json.gz", [](const AnalysisContext& m) {
    const double recorded = After(m, {});
    EXPECT_LT(After(m, {.dispatch_ns = 0}), 0.5 * recorded);
  });
}

// The same training recorded with four workers: the median step shrinks from
// 176.3 to 126.5 ms.
TEST_F(DeviceRealTracesTest, LoaderWorkersGainWhatWasMeasured) {
  Read("resnet50_v100_workers0.pt.trace.json.gz", [](const AnalysisContext& m) {
    const double gained = After(m, {}) - After(m, {.workers = 4});
    EXPECT_NEAR(gained, 49.8, 0.15 * 49.8);
  });
}

// The same copies recorded from pinned memory: 30.7 ms.
TEST_F(DeviceRealTracesTest, PinnedCopiesRunInBothDirectionsAtOnce) {
  Read("h2d_a100_pageable.json.gz", [](const AnalysisContext& m) {
    Edit edit{.no_wait = Calls(m, {"Memcpy"})};
    for (RowId row = 0; row < m.trace.copies().size(); ++row) {
      const bool up = m.trace.copies()[row].destination == MemoryKind::kDevice;
      edit.scales.push_back(
          {{ActivityTable::kCopy, row}, up ? 4.77 / 5.04 : 4.4 / 8.7});
    }
    const double after = After(m, edit);
    EXPECT_LE(after, 30.7 * 1.25);
    EXPECT_GE(after, 30.7 / 1.25);
    // The higher rates alone give less than half of the gain.
    edit.no_wait.clear();
    EXPECT_GT(After(m, edit), 45);
  });
}

// Sums over the trace: 12.6 ms blocked, 1.2 ms idle, 11.6 ms gained.
TEST_F(DeviceRealTracesTest, ReadsCostTheHostItsLead) {
  Read("recsys_a100_rank3of8.json.gz", [](const AnalysisContext& m) {
    const double gained =
        After(m, {}) -
        After(m, {.no_wait = Calls(m, {"Memcpy", "Synchronize"})});
    EXPECT_NEAR(gained, 11.6, 0.1 * 11.6);
  });
}

// Adding up gains kernel by kernel would give 40.1 and 6.5 ms.
TEST_F(DeviceRealTracesTest, FasterKernelsGainNothingIfTheHostIsLate) {
  for (const char* name : {"resnet50_v100_workers4.pt.trace.json.gz",
                           "ddp_resnet_a100_rank0of2.json.gz"}) {
    Read(name, [](const AnalysisContext& m) {
      Edit edit;
      for (RowId row = 0; row < m.trace.kernels().size(); ++row) {
        edit.scales.push_back({{ActivityTable::kKernel, row}, 0.5});
      }
      EXPECT_LT(After(m, {}) - After(m, edit), 0.03 * After(m, {}));
    });
  }
}

}  // namespace
}  // namespace stepscope::device_real_traces_test
