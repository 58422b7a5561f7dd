#include "rows/memory_totals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "support/trace_text.h"

namespace stepscope::memory_totals_test {
namespace {

using ::testing::ElementsAre;

TEST(MemoryTotalsTest, CountsFromTheLeastThatKeepsTotalsAboveZero) {
  const Trace trace = TraceFromText(R"(
    allocation 10 address=1 bytes=100 device_type=1 device=0
    allocation 20 address=2 bytes=-300 device_type=1 device=0
    allocation 30 address=3 bytes=50 device_type=1 device=0
    allocation 40 address=4 bytes=7 device=-1
  )");
  MemoryTotals totals(trace);
  std::vector<int64_t> allocated;
  for (int pass = 0; pass < 2; ++pass) {
    allocated.clear();
    for (RowId row = 0; row < 4; ++row) {
      const MemoryTotals::Totals now = totals.After(row);
      EXPECT_TRUE(now.counted);
      allocated.push_back(now.allocated_bytes);
    }
    EXPECT_THAT(allocated, ElementsAre(300, 0, 50, 7)) << pass;
  }
}

TEST(MemoryTotalsTest, BelievesRecordedTotals) {
  const Trace trace = TraceFromText(R"(
    allocation 10 address=1 bytes=100 total_allocated_bytes=900 total_reserved_bytes=1000 device_type=1 device=0
    allocation 20 address=1 bytes=-100 total_allocated_bytes=800 total_reserved_bytes=1000 device_type=1 device=0
  )");
  MemoryTotals totals(trace);
  EXPECT_EQ(totals.After(0).allocated_bytes, 900);
  const MemoryTotals::Totals now = totals.After(1);
  EXPECT_FALSE(now.counted);
  EXPECT_EQ(now.allocated_bytes, 800);
  EXPECT_EQ(now.reserved_bytes, 1000);
  EXPECT_EQ(now.peak_bytes, 900);
}

}  // namespace
}  // namespace stepscope::memory_totals_test
