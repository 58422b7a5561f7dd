// Our recording of gpu_program beside LibTorch's own of the same program. Needs
// a GPU; elsewhere it says that it was skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/logdir.h>
#include <stepscope/read.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpu/compare_work.h"
#include "support/temp_folder.h"

namespace stepscope {
namespace {

using testing::IsEmpty;
using testing::Not;

constexpr int kSkipped = 77;

class GpuTest : public testing::Test {
 protected:
  // Recorded once for all tests.
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    status_ = Run("stepscope " + folder_->At("log"));
    if (status_ != 0) return;
    for (int i = 0; i < 2 && status_ == 0; ++i) {
      const std::string file =
          folder_->At("kineto" + std::to_string(i) + ".json");
      status_ = Run("kineto " + file);
      if (status_ != 0) return;
      absl::StatusOr<Trace> trace = ReadTrace(file);
      ASSERT_TRUE(trace.ok());
      kineto_.push_back(*std::move(trace));
    }
    const auto run = ResolvePath(folder_->At("log"), "", -1);
    ASSERT_TRUE(run.ok());
    ASSERT_FALSE(run->trace_files.empty());
    absl::StatusOr<Trace> trace = ReadTrace(run->trace_files.front());
    ASSERT_TRUE(trace.ok());
    ours_.emplace(*std::move(trace));
    Keep(run->trace_files.front());
  }
  static void TearDownTestSuite() {
    ours_.reset();
    kineto_.clear();
    delete folder_;
  }

  void SetUp() override {
    if (status_ == kSkipped) {
      GTEST_SKIP() << "skipped: there is no GPU here; on a machine that has "
                      "one: bash tests/gpu/run.sh";
    }
    ASSERT_EQ(status_, 0) << "gpu_program failed; its message is above";
    ASSERT_TRUE(ours_.has_value());
  }

  static int Run(const std::string& words) {
    const char* elsewhere = std::getenv("STEPSCOPE_GPU_PROGRAM");
    const std::string program = elsewhere == nullptr ? GPU_PROGRAM : elsewhere;
    const int status = std::system(("'" + program + "' " + words).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // As a fixture for the tests of machines without a GPU.
  static void Keep(const std::string& trace) {
    const char* results = std::getenv("STEPSCOPE_GPU_RESULTS");
    if (results == nullptr) return;
    namespace fs = std::filesystem;
    const auto over = fs::copy_options::overwrite_existing;
    fs::copy_file(trace, fs::path(results) / "gpu_program.json.gz", over);
    fs::copy_file(folder_->At("kineto0.json"),
                  fs::path(results) / "gpu_program_kineto.json", over);
  }

  static TempFolder* folder_;
  static int status_;
  static std::optional<Trace> ours_;
  static std::vector<Trace> kineto_;
};
TempFolder* GpuTest::folder_ = nullptr;
int GpuTest::status_ = -1;
std::optional<Trace> GpuTest::ours_;
std::vector<Trace> GpuTest::kineto_;

TEST_F(GpuTest, NothingIsMissing) {
  for (const Loss& loss : ours_->losses()) {
    EXPECT_EQ(loss.severity, Severity::kNote)
        << loss.name << ": " << loss.detail;
  }
}

TEST_F(GpuTest, KernelsCopiesAndMemsetsAreKinetos) {
  EXPECT_THAT(DifferencesInWork(*ours_, kineto_), IsEmpty());
}

TEST_F(GpuTest, EveryKindOfRecordIsThere) {
  EXPECT_THAT(ours_->kernels(), Not(IsEmpty()));
  EXPECT_THAT(ours_->memsets(), Not(IsEmpty()));
  EXPECT_THAT(ours_->runtime_calls(), Not(IsEmpty()));
  EXPECT_THAT(ours_->device_memory(), Not(IsEmpty()));
  EXPECT_THAT(ours_->device_samples(), Not(IsEmpty()));
  EXPECT_THAT(ours_->streams(), Not(IsEmpty()));
  EXPECT_THAT(ours_->allocations(), Not(IsEmpty()));
  std::set<std::string> copies;
  for (const Copy& copy : ours_->copies())
    copies.insert(NameOfCopy(*ours_, copy));
  for (const char* copy :
       {"Pageable -> Device", "Pinned -> Device", "Device -> Device",
        "Device -> Pageable", "Device -> Pinned"}) {
    EXPECT_TRUE(copies.contains(copy)) << copy;
  }
  std::set<std::string> waits;
  for (const Sync& sync : ours_->syncs())
    waits.insert(std::string(ours_->name(sync.name)));
  for (const char* wait :
       {"Stream Sync", "Event Sync", "Stream Wait Event", "Context Sync"}) {
    EXPECT_TRUE(waits.contains(wait)) << wait;
  }
  EXPECT_TRUE(std::any_of(
      ours_->syncs().begin(), ours_->syncs().end(),
      [](const Sync& sync) { return sync.wait_on_record_correlation >= 0; }));
}

TEST_F(GpuTest, WorkIsLinkedToItsCallAndKernelsToTheirOperator) {
  int64_t with_op = 0;
  for (const Kernel& kernel : ours_->kernels()) {
    EXPECT_NE(kernel.call, kNone);
    EXPECT_GE(kernel.registers_per_thread, 0);
    EXPECT_GT(kernel.occupancy_frac, 0);
    with_op += kernel.op != kNone;
  }
  EXPECT_GT(with_op, 0);
  for (const Copy& copy : ours_->copies()) EXPECT_NE(copy.call, kNone);
}

// A kernel cannot begin before the call that asked for it: if the two clocks
// are told apart wrongly, this shows it.
TEST_F(GpuTest, NoKernelBeginsBeforeItsCall) {
  for (const Kernel& kernel : ours_->kernels()) {
    if (kernel.call == kNone) continue;
    EXPECT_GE(kernel.begin_ns,
              ours_->runtime_calls()[kernel.call].begin_ns - 2'000);
  }
}

TEST_F(GpuTest, CuptisOwnBuffersCanBeKept) {
  const std::string file = folder_->At("gpu_program.cupti");
  ASSERT_EQ(Run("buffers " + file), 0);
  EXPECT_GT(std::filesystem::file_size(file), 1'000u);
  if (const char* results = std::getenv("STEPSCOPE_GPU_RESULTS")) {
    std::filesystem::copy_file(
        file, std::filesystem::path(results) / "gpu_program.cupti",
        std::filesystem::copy_options::overwrite_existing);
  }
}

}  // namespace
}  // namespace stepscope
