// Tests the list of sources, which is the same in every build.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/collectors.h>
#include <stepscope/unavailable_collector.h>

#include <string>
#include <vector>

namespace stepscope::collectors_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Whether this build has the sources that need LibTorch.
constexpr bool kWithTorch = STEPSCOPE_TEST_WITH_TORCH;

std::string Message(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

TEST(CollectorsTest, EveryBuildHasEverySourceInItsDefaultList) {
  std::vector<std::string> names;
  for (const auto& collector : DefaultCollectors()) {
    names.emplace_back(collector->name());
  }
  EXPECT_THAT(names, ElementsAre("host", "settings", "allocator", "cupti",
                                 "nvtx", "torch"));
}

TEST(CollectorsTest, ASourceThatWasNotBuiltIsUnavailableAndSaysWhatToDo) {
  if (kWithTorch) GTEST_SKIP() << "this build has LibTorch";
  const auto check = [](Collector& collector) {
    const absl::Status status = collector.Start();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(Message(status), HasSubstr("was built without LibTorch"));
    EXPECT_THAT(Message(status), HasSubstr("STEPSCOPE_TORCH=ON"));
  };
  check(*MakeTorchCollector({}));
  check(*MakeSettingsCollector());
  check(*MakeAllocatorCollector());
}

TEST(UnavailableCollectorTest, CanNeitherStartNorStop) {
  const auto collector = MakeUnavailableCollector("none", "none: not there");
  EXPECT_EQ(collector->name(), "none");
  EXPECT_EQ(collector->Start(), absl::UnavailableError("none: not there"));
  collector->OnStep(0, 0);
  EXPECT_FALSE(collector->Stop().ok());
}

}  // namespace
}  // namespace stepscope::collectors_test
