#include "ops/intervals.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <utility>
#include <vector>

#include "ops/sorted_parts.h"

namespace stepscope::intervals_test {
namespace {

constexpr int kEnd = 64;
using Bits = std::array<bool, kEnd>;

Bits BitsOf(const std::vector<Span>& spans) {
  Bits bits{};
  for (const Span& span : spans) {
    for (int64_t t = span.begin_ns; t < span.end_ns; ++t) bits[t] = true;
  }
  return bits;
}

std::vector<Span> RandomSpans(std::mt19937& random) {
  std::vector<Span> spans(random() % 6);
  for (Span& span : spans) {
    span.begin_ns = random() % kEnd;
    span.end_ns = span.begin_ns + random() % (kEnd - span.begin_ns);
  }
  return spans;
}

void ExpectDisjoint(const std::vector<Span>& spans) {
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_GT(spans[i].length(), 0);
    if (i > 0) {
      EXPECT_GE(spans[i].begin_ns, spans[i - 1].end_ns);
    }
  }
}

TEST(IntervalsTest, AgreeWithOneBitPerNanosecond) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<Span> raw_a = RandomSpans(random);
    const std::vector<Span> raw_b = RandomSpans(random);
    const std::vector<Span> a = Merge(raw_a), b = Merge(raw_b);
    const Bits bits_a = BitsOf(raw_a), bits_b = BitsOf(raw_b);
    const Span window{static_cast<int64_t>(random() % 32),
                      static_cast<int64_t>(32 + random() % 32)};
    Bits both{}, rest{}, inside{};
    int64_t length = 0, length_in = 0;
    for (int t = 0; t < kEnd; ++t) {
      both[t] = bits_a[t] && bits_b[t];
      rest[t] = bits_a[t] && !bits_b[t];
      inside[t] = bits_a[t] && window.begin_ns <= t && t < window.end_ns;
      length += bits_a[t];
      length_in += inside[t];
    }
    ExpectDisjoint(a);
    ExpectDisjoint(Intersect(a, b));
    ExpectDisjoint(Subtract(a, b));
    EXPECT_EQ(BitsOf(a), bits_a);
    EXPECT_EQ(BitsOf(Intersect(a, b)), both);
    EXPECT_EQ(BitsOf(Subtract(a, b)), rest);
    EXPECT_EQ(BitsOf(Clip(a, window)), inside);
    EXPECT_EQ(Length(a), length);
    EXPECT_EQ(LengthIn(a, window), length_in);
  }
}

TEST(IntervalsTest, MergeDropsEmptyAndReversedSpans) {
  EXPECT_TRUE(Merge({{5, 5}, {9, 3}}).empty());
}

TEST(IntervalsTest, SpansThatTouchBecomeOne) {
  EXPECT_EQ(Merge({{5, 9}, {0, 5}}), (std::vector<Span>{{0, 9}}));
}

// Three sorted tables. A row is a number and the name of its table.
TEST(MergeSortedPartsTest, EqualRowsKeepTheOrderOfTheirTables) {
  using Row = std::pair<int, char>;
  std::vector<Row> rows = {{1, 'a'}, {3, 'a'}, {3, 'A'}, {2, 'c'}, {3, 'c'}};
  MergeSortedParts(rows, {3, 3, 5}, &Row::first);
  EXPECT_EQ(rows, (std::vector<Row>{
                      {1, 'a'}, {2, 'c'}, {3, 'a'}, {3, 'A'}, {3, 'c'}}));
  std::vector<Row> none;
  MergeSortedParts(none, {0, 0}, &Row::first);
  EXPECT_TRUE(none.empty());
}

}  // namespace
}  // namespace stepscope::intervals_test
