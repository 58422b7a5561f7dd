// Tests the comparison on made-up device work.
#include "gpu/compare_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/trace_builder.h>

#include <random>

namespace stepscope::compare_work_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Made {
  int kernels = 40;
  int64_t duration_ns = 10'000;
  int copies = 3;
  int64_t jitter_ns = 100;
  MemoryKind from = MemoryKind::kPinned;
};

Trace Make(const Made& made, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  TraceBuilder builder;
  int64_t now = 1'000;
  const auto length = [&] {
    return made.duration_ns +
           static_cast<int64_t>(random() % (2 * made.jitter_ns + 1)) -
           made.jitter_ns;
  };
  for (int i = 0; i < made.kernels; ++i) {
    Kernel kernel;
    kernel.begin_ns = now;
    kernel.end_ns = now += length();
    kernel.name = builder.Intern(i % 40 == 39 ? "rare" : "gemm");
    builder.Add(kernel);
  }
  for (int i = 0; i < made.copies; ++i) {
    Copy copy;
    copy.begin_ns = now;
    copy.end_ns = now += length();
    copy.source = made.from;
    copy.destination = MemoryKind::kDevice;
    copy.bytes = 4096;
    builder.Add(copy);
  }
  return builder.Build();
}

std::vector<Trace> Runs(const Made& first, const Made& second) {
  std::vector<Trace> runs;
  runs.push_back(Make(first, 2));
  runs.push_back(Make(second, 3));
  return runs;
}

TEST(CompareWorkTest, TheSameWorkHasNoDifferences) {
  EXPECT_THAT(DifferencesInWork(Make({}), Runs({}, {})), IsEmpty());
}

TEST(CompareWorkTest, AKernelThatIsMissingIsADifference) {
  EXPECT_THAT(DifferencesInWork(Make({.kernels = 38}), Runs({}, {})),
              ElementsAre(HasSubstr("kernel gemm: 38 times, the other "
                                    "profiler 39"),
                          HasSubstr("kernel rare: 0 times")));
  EXPECT_THAT(DifferencesInWork(Make({}), Runs({.kernels = 38}, {})).size(),
              2u);
}

TEST(CompareWorkTest, ACopyFromOtherMemoryIsADifference) {
  EXPECT_THAT(
      DifferencesInWork(Make({.from = MemoryKind::kPageable}), Runs({}, {})),
      ElementsAre(HasSubstr("Pageable -> Device of 4096 bytes: 3 times"),
                  HasSubstr("Pinned -> Device of 4096 bytes: 0 times")));
}

TEST(CompareWorkTest, AMedianMayDifferByOnePerCentButNotByTwo) {
  const Made quiet = {.jitter_ns = 1};
  Made slower = quiet;
  slower.duration_ns = 10'090;
  EXPECT_THAT(DifferencesInWork(Make(slower), Runs(quiet, quiet)), IsEmpty());
  slower.duration_ns = 10'200;
  EXPECT_THAT(DifferencesInWork(Make(slower), Runs(quiet, quiet)),
              ElementsAre(HasSubstr("kernel gemm: median 102")));
}

TEST(CompareWorkTest, AnotherProfilerThatVariesWidensTheTolerance) {
  const Made quiet = {.jitter_ns = 1};
  Made slow = quiet;
  slow.duration_ns = 10'500;
  Made between = quiet;
  between.duration_ns = 10'300;
  EXPECT_THAT(DifferencesInWork(Make(between), Runs(quiet, slow)), IsEmpty());
}

TEST(CompareWorkTest, NamesWithFewRepeatsAreOnlyCounted) {
  Made slow = {.kernels = 20};
  slow.duration_ns = 30'000;
  EXPECT_THAT(DifferencesInWork(Make(slow), Runs({.kernels = 20}, {})),
              IsEmpty());
}

}  // namespace
}  // namespace stepscope::compare_work_test
