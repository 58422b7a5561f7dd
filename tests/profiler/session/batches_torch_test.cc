// Tests Batches on LibTorch's own DataLoader, and the default collectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/batches.h>
#include <stepscope/collectors.h>
#include <stepscope/session.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace stepscope::batches_torch_test {
namespace {

using ::testing::SizeIs;

class Numbers : public torch::data::datasets::Dataset<Numbers, int64_t> {
 public:
  int64_t get(size_t index) override {
    usleep(500);
    return static_cast<int64_t>(index);
  }
  torch::optional<size_t> size() const override { return 12; }
};

auto MakeLoader(size_t workers) {
  return torch::data::make_data_loader(
      Numbers(),
      torch::data::DataLoaderOptions().batch_size(4).workers(workers));
}

std::unique_ptr<Session> OpenWindow() {
  Session::Options options{.name = "batches",
                           .schedule = {.wait = 0, .warmup = 0, .active = 1}};
  options.collectors = DefaultCollectors();
  auto session = Session::Make(std::move(options));
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

class LibTorchLoaderTest : public ::testing::TestWithParam<size_t> {};

TEST_P(LibTorchLoaderTest, GivesAllBatchesAndRecordsEachWait) {
  const size_t workers = GetParam();
  auto loader = MakeLoader(workers);
  const auto session = OpenWindow();
  std::multiset<int64_t> seen;
  for (std::vector<int64_t>& batch : Batches(*loader, "train")) {
    seen.insert(batch.begin(), batch.end());
  }
  EXPECT_THAT(seen, SizeIs(12));
  const Trace trace = session->Step()->Build({});
  int waits = 0;
  for (const Range& range : trace.ranges()) {
    if (range.kind != RangeKind::kLoader) continue;
    ++waits;
    EXPECT_EQ(trace.name(range.name),
              workers == 0 ? kSingleProcessWait : kMultiProcessWait);
    EXPECT_EQ(trace.name(range.detail), "train");
    EXPECT_EQ(range.thread, trace.run().training_thread);
  }
  EXPECT_EQ(waits, 4);  // three batches and the end
  ASSERT_THAT(trace.loaders(), SizeIs(1));
  EXPECT_EQ(trace.loaders()[0].workers, static_cast<int32_t>(workers));
  EXPECT_EQ(trace.loaders()[0].batch_size, 4);
}

INSTANTIATE_TEST_SUITE_P(Workers, LibTorchLoaderTest,
                         ::testing::Values(0, 1, 3));

TEST(LibTorchLoaderThreadsTest, AreFoundAndTheirWorkIsCounted) {
  auto loader = MakeLoader(2);
  Batches batches(*loader, "train");
  std::array<int64_t, 8> tids{};
  ASSERT_EQ(LoaderThreads(tids), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(
        access(("/proc/self/task/" + std::to_string(tids[i])).c_str(), F_OK),
        0);
  }
  const auto session = OpenWindow();
  for (auto& batch : batches) (void)batch;
  const Trace trace = session->Step()->Build({});
  ASSERT_THAT(trace.host_usage(), SizeIs(1));
  EXPECT_EQ(trace.host_usage()[0].loader_workers, 2);
  EXPECT_GE(trace.host_usage()[0].loader_cpu_ns, 0);
}

TEST(DefaultCollectorsTest, AllStartInABuildWithLibTorch) {
  const auto session = OpenWindow();
  const Trace trace = session->Step()->Build({});
  // Without a GPU, the CUPTI collector finds nothing, which is a note.
  for (const Loss& loss : trace.losses()) {
    EXPECT_EQ(loss.name, "cupti-unavailable") << loss.detail;
    EXPECT_EQ(loss.severity, Severity::kNote) << loss.detail;
  }
  for (Kind kind : {Kind::kStep, Kind::kOp, Kind::kRange, Kind::kSettings,
                    Kind::kHostUsage}) {
    EXPECT_TRUE(trace.watched(kind)) << KindName(kind);
  }
  EXPECT_FALSE(trace.run().torch_version.empty());
  EXPECT_GT(trace.run().usable_cores, 0);
  ASSERT_THAT(trace.settings(), SizeIs(1));
  EXPECT_EQ(trace.settings()[0].grad_mode, 1);
}

}  // namespace
}  // namespace stepscope::batches_torch_test
