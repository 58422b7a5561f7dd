#include "rows/event_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/random_trace.h"
#include "support/trace_text.h"

namespace stepscope::event_order_test {
namespace {

TEST(LanesTest, KeepsSlicesThatNestTogether) {
  Lanes lanes;
  EXPECT_EQ(lanes.Place(0, 100), 0u);
  EXPECT_EQ(lanes.Place(10, 50), 0u);
  EXPECT_EQ(lanes.Place(50, 100), 0u);  // touching is not crossing
  EXPECT_EQ(lanes.Place(60, 60), 0u);
  EXPECT_EQ(lanes.Place(100, 200), 0u);
}

TEST(LanesTest, MovesSlicesThatCross) {
  Lanes lanes;
  EXPECT_EQ(lanes.Place(0, 100), 0u);
  EXPECT_EQ(lanes.Place(50, 101), 1u);
  EXPECT_EQ(lanes.Place(60, 150), 2u);
  EXPECT_EQ(lanes.Place(70, 80), 0u);
  EXPECT_EQ(lanes.Place(160, 170), 0u);
}

TEST(LanesTest, NoTwoSlicesOfALaneEverCross) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<int64_t, int64_t>> slices(30);
    for (auto& [begin, end] : slices) {
      begin = static_cast<int64_t>(random() % 50);
      end = begin + static_cast<int64_t>(random() % 20);
    }
    std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    Lanes lanes;
    std::vector<size_t> placed;
    for (const auto& [begin, end] : slices)
      placed.push_back(lanes.Place(begin, end));
    for (size_t a = 0; a < slices.size(); ++a) {
      for (size_t b = a + 1; b < slices.size(); ++b) {
        if (placed[a] != placed[b]) continue;
        EXPECT_FALSE(slices[a].first < slices[b].first &&
                     slices[b].first < slices[a].second &&
                     slices[a].second < slices[b].second);
      }
    }
  }
}

TEST(EventOrderTest, GivesEveryRowOnceInTimeOrder) {
  const Trace trace = RandomTrace({.seed = 11});
  EventOrder order(trace);
  size_t ops = 0;
  size_t kernels = 0;
  int64_t before_ns = 0;
  while (order.Next()) {
    if (order.table() == Table::kOp) {
      EXPECT_EQ(order.row(), ops);  // keeps the table's own order
      const int64_t begin_ns = trace.ops()[ops].begin_ns;
      EXPECT_LE(before_ns, begin_ns);
      before_ns = begin_ns;
      ++ops;
    }
    if (order.table() == Table::kKernel) {
      EXPECT_LE(before_ns, trace.kernels()[kernels].begin_ns);
      before_ns = trace.kernels()[kernels].begin_ns;
      ++kernels;
    }
  }
  EXPECT_EQ(ops, trace.ops().size());
  EXPECT_EQ(kernels, trace.kernels().size());
}

TEST(EventOrderTest, PutsTheStepAroundWhatFillsIt) {
  const Trace trace = TraceFromText(R"(
    op 0..100 thread=0 aten::add
    range 0..100 thread=0 forward
    step 0..100 thread=0
  )");
  EventOrder order(trace);
  std::vector<Table> tables;
  while (order.Next()) tables.push_back(order.table());
  EXPECT_EQ(tables,
            (std::vector<Table>{Table::kStep, Table::kRange, Table::kOp}));
}

TEST(SpanOfTest, CoversRowsAndWindow) {
  EXPECT_EQ(SpanOf(Trace()).end_ns, 0);
  const Trace trace = TraceFromText(R"(
    run window_begin_ns=50 window_end_ns=400 x
    op 40..60 thread=0 a
    allocation 500 thread=0 bytes=1
  )");
  EXPECT_EQ(SpanOf(trace).begin_ns, 40);
  EXPECT_EQ(SpanOf(trace).end_ns, 500);
}

}  // namespace
}  // namespace stepscope::event_order_test
