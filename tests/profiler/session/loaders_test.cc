#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/loaders.h>
#include <stepscope/session.h>

#include <array>
#include <memory>

namespace stepscope::loaders_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::unique_ptr<Session> OpenWindow(int64_t active = 1) {
  auto session =
      Session::Make({.name = "loaders",
                     .schedule = {.wait = 0, .warmup = 0, .active = active}});
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

TEST(LoadersTest, ALoaderThatWasWaitedForIsInTheTrace) {
  LoaderRegistration used({.name = "train",
                           .kind = "threads",
                           .workers = 2,
                           .batch_size = 32,
                           .pin_memory = 1,
                           .persistent_workers = 0,
                           .prefetch_factor = 4});
  LoaderRegistration unused({"test", "in-process", 0, 8, {}});
  const auto session = OpenWindow();
  used.MarkWait();
  const Trace trace = session->Step()->Build({});
  ASSERT_THAT(trace.loaders(), SizeIs(1));
  const Loader& loader = trace.loaders()[0];
  EXPECT_EQ(trace.name(loader.name), "train");
  EXPECT_EQ(trace.name(loader.kind), "threads");
  EXPECT_EQ(loader.workers, 2);
  EXPECT_EQ(loader.batch_size, 32);
  EXPECT_EQ(loader.pin_memory, 1);
  EXPECT_EQ(loader.persistent_workers, 0);
  EXPECT_EQ(loader.prefetch_factor, 4);
  EXPECT_TRUE(trace.watched(Kind::kLoader));
}

TEST(LoadersTest, WithoutALoaderTheKindWasNotWatched) {
  const auto session = OpenWindow();
  EXPECT_FALSE(session->Step()->Build({}).watched(Kind::kLoader));
}

TEST(LoadersTest, AWaitBeforeTheWindowDoesNotCount) {
  LoaderRegistration loader({"train", "in-process", 0, 32, {}});
  loader.MarkWait();
  OpenWindow()->Step();
  loader.MarkWait();
  const auto session = OpenWindow();
  EXPECT_THAT(session->Step()->Build({}).loaders(), IsEmpty());
}

TEST(LoadersTest, ALoaderThatEndedInsideTheWindowIsKeptOnce) {
  const auto session = OpenWindow();
  for (int epoch = 0; epoch < 200; ++epoch) {
    LoaderRegistration loader({"train", "in-process", 0, 32, {}});
    loader.MarkWait();
  }
  EXPECT_THAT(session->Step()->Build({}).loaders(), SizeIs(1));
  EXPECT_THAT(TakeLoadersWaitedFor(0), IsEmpty());
}

TEST(LoadersTest, KnowsTheThreadsOfTheLoadersThatLive) {
  std::array<int64_t, 4> tids{};
  EXPECT_EQ(LoaderThreads(tids), 0u);
  {
    LoaderRegistration first({"a", "threads", 2, 1, {11, 12}});
    LoaderRegistration second({"b", "threads", 1, 1, {13}});
    EXPECT_EQ(LoaderThreads(tids), 3u);
    EXPECT_THAT(tids, ElementsAre(11, 12, 13, 0));
    std::array<int64_t, 2> few{};
    EXPECT_EQ(LoaderThreads(few), 3u);
  }
  EXPECT_EQ(LoaderThreads(tids), 0u);
}

}  // namespace
}  // namespace stepscope::loaders_test
