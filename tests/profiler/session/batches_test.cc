#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/batches.h>
#include <stepscope/session.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace stepscope::batches_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct FakeOptions {
  size_t batch_size = 4;
  size_t workers = 0;
};

// Counts to `count`. Like LibTorch's iterator, it fetches when it is compared.
class FakeLoader {
 public:
  explicit FakeLoader(int count, size_t workers = 0) : count_(count) {
    options_.workers = workers;
    for (size_t i = 0; i < workers; ++i) {
      workers_.emplace_back([stop = stop_] { stop.wait(); });
    }
  }
  ~FakeLoader() {
    release_.set_value();
    for (std::thread& worker : workers_) worker.join();
  }

  class Iterator {
   public:
    explicit Iterator(FakeLoader* loader) : loader_(loader) {}
    int& operator*() { return value_; }
    Iterator& operator++() {
      fetched_ = false;
      return *this;
    }
    bool operator!=(const Iterator&) {
      if (!fetched_) {
        usleep(100);
        value_ = loader_->made_++;
        fetched_ = true;
      }
      if (loader_->throw_at_ == value_) throw std::runtime_error("bad file");
      return value_ < loader_->count_;
    }

   private:
    FakeLoader* loader_;
    bool fetched_ = false;
    int value_ = 0;
  };
  Iterator begin() { return Iterator(this); }
  Iterator end() { return Iterator(this); }
  const FakeOptions& options() const { return options_; }

  int throw_at_ = -1;

 protected:
  std::vector<std::thread> workers_;

 private:
  friend class Iterator;
  int count_;
  int made_ = 0;
  FakeOptions options_;
  std::promise<void> release_;
  std::shared_future<void> stop_ = release_.get_future().share();
};

std::unique_ptr<Session> OpenWindow() {
  auto session = Session::Make(
      {.name = "batches", .schedule = {.wait = 0, .warmup = 0, .active = 1}});
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

std::vector<std::pair<std::string, std::string>> Waits(const Trace& trace) {
  std::vector<std::pair<std::string, std::string>> waits;
  for (const Range& range : trace.ranges()) {
    EXPECT_EQ(range.kind, RangeKind::kLoader);
    EXPECT_GE(range.end_ns - range.begin_ns, 100'000);
    waits.emplace_back(trace.name(range.name), trace.name(range.detail));
  }
  return waits;
}

TEST(BatchesTest, GivesEveryBatchOnceAndInOrder) {
  FakeLoader loader(3);
  std::vector<int> seen;
  for (auto& batch : Batches(loader, "train")) seen.push_back(batch);
  EXPECT_THAT(seen, ElementsAre(0, 1, 2));
}

TEST(BatchesTest, RecordsAWaitPerBatchAndOneForTheEnd) {
  FakeLoader loader(2);
  const auto session = OpenWindow();
  for (int batch : Batches(loader, "train")) (void)batch;
  const Trace trace = session->Step()->Build({});
  const std::pair<std::string, std::string> wait = {
      "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "train"};
  EXPECT_THAT(Waits(trace), ElementsAre(wait, wait, wait));
  ASSERT_THAT(trace.loaders(), SizeIs(1));
  EXPECT_EQ(trace.name(trace.loaders()[0].kind), "in-process");
  EXPECT_EQ(trace.loaders()[0].workers, 0);
  EXPECT_EQ(trace.loaders()[0].batch_size, 4);
}

TEST(BatchesTest, ALoaderWithWorkersHasTheOtherNameAndItsThreadsAreKnown) {
  FakeLoader loader(1, 2);
  const auto session = OpenWindow();
  {
    Batches batches(loader, "train");
    std::array<int64_t, 4> tids{};
    ASSERT_EQ(LoaderThreads(tids), 2u);
    for (int i = 0; i < 2; ++i) {
      const std::string task = "/proc/self/task/" + std::to_string(tids[i]);
      EXPECT_EQ(access(task.c_str(), F_OK), 0) << task;
      EXPECT_NE(tids[i], gettid());
    }
    EXPECT_NE(tids[0], tids[1]);
    for (int batch : batches) (void)batch;
  }
  const Trace trace = session->Step()->Build({});
  const std::pair<std::string, std::string> wait = {
      "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "train"};
  EXPECT_THAT(Waits(trace), ElementsAre(wait, wait));
  ASSERT_THAT(trace.loaders(), SizeIs(1));
  EXPECT_EQ(trace.name(trace.loaders()[0].kind), "threads");
  EXPECT_EQ(trace.loaders()[0].workers, 2);
}

TEST(BatchesTest, AnEmptyLoaderIsOneWait) {
  FakeLoader loader(0);
  const auto session = OpenWindow();
  for (int batch : Batches(loader, "train")) FAIL() << batch;
  EXPECT_THAT(session->Step()->Build({}).ranges(), SizeIs(1));
}

TEST(BatchesTest, WithoutAWindowNothingIsRecorded) {
  FakeLoader loader(2);
  for (int batch : Batches(loader, "train")) (void)batch;
  const auto session = OpenWindow();
  const Trace trace = session->Step()->Build({});
  EXPECT_THAT(trace.ranges(), IsEmpty());
  EXPECT_THAT(trace.loaders(), IsEmpty());
}

TEST(BatchesTest, AnExceptionOfTheLoaderPassesAndEndsTheWait) {
  FakeLoader loader(3);
  loader.throw_at_ = 1;
  const auto session = OpenWindow();
  int seen = 0;
  EXPECT_THROW(for (int batch
                    : Batches(loader, "train")) seen += batch + 1,
               std::runtime_error);
  EXPECT_EQ(seen, 1);
  EXPECT_THAT(Waits(session->Step()->Build({})), SizeIs(2));
}

TEST(BatchesTest, AnyRangeWithBeginAndEndIsALoader) {
  std::vector<int> batches = {7, 8};
  const auto session = OpenWindow();
  std::vector<int> seen;
  for (int& batch : Batches(batches)) seen.push_back(batch);
  EXPECT_THAT(seen, ElementsAre(7, 8));
  const Trace trace = session->Step()->Build({});
  ASSERT_THAT(trace.loaders(), SizeIs(1));
  EXPECT_EQ(trace.loaders()[0].workers, -1);
  EXPECT_EQ(trace.loaders()[0].batch_size, -1);
}

TEST(BatchesTest, ABatchCanBeMovedOut) {
  std::vector<std::unique_ptr<int>> batches;
  batches.push_back(std::make_unique<int>(5));
  std::unique_ptr<int> taken;
  for (auto& batch : Batches(batches, "train")) taken = std::move(batch);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(*taken, 5);
}

TEST(RangeTest, NamesUserPhasesAndModules) {
  const auto session = OpenWindow();
  {
    const PhaseRange phase(Phase::kForward);
    const ModuleRange module("layer1.0.conv1", "Conv2d");
    const UserRange user("augment");
    usleep(10);
  }
  const Trace trace = session->Step()->Build({});
  ASSERT_THAT(trace.ranges(), SizeIs(3));
  EXPECT_EQ(trace.name(trace.ranges()[0].name), "forward");
  EXPECT_EQ(trace.ranges()[0].kind, RangeKind::kPhase);
  EXPECT_EQ(trace.name(trace.ranges()[1].name), "layer1.0.conv1");
  EXPECT_EQ(trace.name(trace.ranges()[1].detail), "Conv2d");
  EXPECT_EQ(trace.ranges()[1].kind, RangeKind::kModule);
  EXPECT_EQ(trace.name(trace.ranges()[2].name), "augment");
  EXPECT_EQ(trace.ranges()[2].kind, RangeKind::kUser);
}

}  // namespace
}  // namespace stepscope::batches_test
