// Compares our recording of GPU work with LibTorch's own recording of the same
// work. Needs a GPU; skipped on other machines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/read.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "gpu/compare_work.h"
#include "gpu/launch_lags.h"
#include "gpu/recorded_parts.h"
#include "support/temp_folder.h"

namespace stepscope::gpu_test {
namespace {

using testing::IsEmpty;
using testing::Not;

constexpr int kSkipped = 77;
// A kernel may start before its call by this time, but only a small share may.
constexpr int64_t kEarlyNs = 2'000;
constexpr double kEarlyShare = 0.05;
// On an H200, medians of the same kernel in two processes differed by up to 4 %
// or two ticks; in one process (gpu_parts_test.cc) by less than 1 %.
constexpr CompareOptions kBetweenProcesses = {.least_tolerance = 0.05,
                                              .tick_ns = 64};

class GpuTest : public testing::Test {
 protected:
  // Records once for all tests, unless slot.sh has recorded before.
  static void SetUpTestSuite() {
    temporary_ = new TempFolder;
    const auto recorded = FolderOfPart("tests");
    const std::string folder =
        recorded ? recorded->string() : temporary_->At("tests");
    for (const char* stage : {"ours", "kineto", "kineto"}) {
      if (recorded || status_ != 0) break;
      status_ = Run("'" + folder + "' " + stage);
    }
    if (status_ != 0) return;
    traces_ = new Traces;
    traces_->ours = ReadAll(folder, "_ours.");
    traces_->kineto = ReadAll(folder, "_kineto.");
  }
  static void TearDownTestSuite() {
    delete traces_;
    delete temporary_;
  }

  void SetUp() override {
    if (status_ == kSkipped) {
      GTEST_SKIP() << "skipped: there is no GPU here; on a machine that has "
                      "one: bash tests/gpu/slot.sh";
    }
    ASSERT_EQ(status_, 0) << "gpu_program failed; its message is above";
    ASSERT_EQ(traces_->ours.size(), 1u);
    ASSERT_EQ(traces_->kineto.size(), 2u);
  }
  static const Trace& Ours() { return traces_->ours.front(); }
  static const std::vector<Trace>& Kineto() { return traces_->kineto; }

  static int Run(const std::string& words) {
    const int status = std::system(("'" GPU_PROGRAM "' " + words).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  static std::vector<Trace> ReadAll(const std::filesystem::path& folder,
                                    const std::string& word) {
    std::vector<Trace> traces;
    for (const std::string& file : FilesWith(folder, word)) {
      absl::StatusOr<Trace> trace = ReadTrace(file);
      EXPECT_TRUE(trace.ok()) << trace.status();
      if (trace.ok()) traces.push_back(*std::move(trace));
    }
    return traces;
  }

  static TempFolder* temporary_;

 private:
  struct Traces {
    std::vector<Trace> ours, kineto;
  };
  static int status_;
  static Traces* traces_;
};
TempFolder* GpuTest::temporary_ = nullptr;
int GpuTest::status_ = 0;
GpuTest::Traces* GpuTest::traces_ = nullptr;

TEST_F(GpuTest, NothingIsMissing) {
  for (const Loss& loss : Ours().losses()) {
    EXPECT_EQ(loss.severity, Severity::kNote)
        << loss.name << ": " << loss.detail;
  }
}

TEST_F(GpuTest, KernelsCopiesAndMemsetsAreKinetos) {
  if (IsFake()) GTEST_SKIP() << "a fake CUPTI leaves no records for Kineto";
  EXPECT_THAT(DifferencesInWork(Ours(), Kineto(), kBetweenProcesses),
              IsEmpty());
}

TEST_F(GpuTest, EveryKindOfRecordIsThere) {
  EXPECT_THAT(Ours().kernels(), Not(IsEmpty()));
  EXPECT_THAT(Ours().memsets(), Not(IsEmpty()));
  EXPECT_THAT(Ours().runtime_calls(), Not(IsEmpty()));
  EXPECT_THAT(Ours().allocations(), Not(IsEmpty()));
  if (IsFake()) GTEST_SKIP() << "the rest needs a device";
  EXPECT_THAT(Ours().device_memory(), Not(IsEmpty()));
  EXPECT_THAT(Ours().device_samples(), Not(IsEmpty()));
  EXPECT_THAT(Ours().streams(), Not(IsEmpty()));
  std::set<std::string> copies;
  for (const Copy& copy : Ours().copies())
    copies.insert(NameOfCopy(Ours(), copy));
  for (const char* copy :
       {"Pageable -> Device", "Pinned -> Device", "Device -> Device",
        "Device -> Pageable", "Device -> Pinned"}) {
    EXPECT_TRUE(copies.contains(copy)) << copy;
  }
  std::set<std::string> waits;
  for (const Sync& sync : Ours().syncs())
    waits.insert(std::string(Ours().name(sync.name)));
  for (const char* wait :
       {"Stream Sync", "Event Sync", "Stream Wait Event", "Context Sync"}) {
    EXPECT_TRUE(waits.contains(wait)) << wait;
  }
  EXPECT_TRUE(std::any_of(
      Ours().syncs().begin(), Ours().syncs().end(),
      [](const Sync& sync) { return sync.wait_on_record_correlation >= 0; }));
}

TEST_F(GpuTest, WorkIsLinkedToItsCallAndKernelsToTheirOperator) {
  int64_t with_op = 0;
  for (const Kernel& kernel : Ours().kernels()) {
    EXPECT_NE(kernel.call, kNone);
    EXPECT_GE(kernel.registers_per_thread, 0);
    EXPECT_GT(kernel.occupancy_frac, 0);
    with_op += kernel.op != kNone;
  }
  EXPECT_GT(with_op, 0);
  for (const Copy& copy : Ours().copies()) EXPECT_NE(copy.call, kNone);
}

// Fails if the offset between the two clocks is wrong.
TEST_F(GpuTest, KernelsBeginAfterTheirCalls) {
  const std::vector<int64_t> ours = LaunchLagsNs(Ours());
  std::printf("launch to kernel, ours: %s\n", LagText(ours).c_str());
  for (const Trace& trace : Kineto()) {
    const std::vector<int64_t> theirs = LaunchLagsNs(trace);
    std::printf("launch to kernel, Kineto: %s\n", LagText(theirs).c_str());
  }
  ASSERT_THAT(ours, Not(IsEmpty()));
  EXPECT_GE(LagQuantileNs(ours, kEarlyShare), -kEarlyNs);
}

TEST_F(GpuTest, CuptisOwnBuffersCanBeKept) {
  const auto recorded = FolderOfPart("buffers");
  const std::string folder =
      recorded ? recorded->string() : temporary_->At("buffers");
  if (!recorded) {
    ASSERT_EQ(Run("'" + folder + "' buffers"), 0);
  }
  const std::vector<std::string> files = FilesWith(folder, ".cupti");
  ASSERT_EQ(files.size(), 1u);
  EXPECT_GT(std::filesystem::file_size(files.front()), 1'000u);
}

}  // namespace
}  // namespace stepscope::gpu_test
