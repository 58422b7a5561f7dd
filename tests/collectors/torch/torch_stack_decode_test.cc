#include "torch_stack_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace stepscope::torch_stack_decode_test {
namespace {

using testing::ElementsAre;

// One thread. The sampled step lasts from 1000 to 2000, and each later step
// lasts 1000 ns. Operators are added in pre-order.
class StackMatcherTest : public testing::Test {
 protected:
  StackMatcherTest() { thread_ = builder_.ThreadRow(1, 1); }

  // `line` is the source line recorded for the operator; "": none.
  size_t Add(int64_t begin, int64_t end, std::string_view name,
             const std::string& line = "", OpKind kind = OpKind::kOperator) {
    ops_.push_back({.begin_ns = begin,
                    .end_ns = end,
                    .name = builder_.Intern(name),
                    .thread = thread_,
                    .kind = kind});
    samples_.emplace_back();
    if (!line.empty()) {
      samples_.back() = {.taken = true, .stack = RowOf(line)};
    }
    return ops_.size() - 1;
  }

  // Adds an operator inside the calls of modules, given by number, outermost
  // first.
  void AddIn(int64_t begin, int64_t end, std::vector<uint64_t> calls) {
    Add(begin, end, "aten::linear");
    samples_.back() = {.taken = true,
                       .python = static_cast<uint32_t>(python_.calls.size())};
    python_.calls.push_back(std::move(calls));
    python_.stacks.emplace_back();
  }

  RowId RowOf(const std::string& line) {
    return builder_.InternStack({.frames = {builder_.Intern(line)}});
  }

  // Returns the operators' lines in the order of adding.
  std::vector<std::string> Lines(size_t from = 0) {
    const StackSteps steps{.sample_begin_ns = 1000,
                           .sample_end_ns = 2000,
                           .ends_ns = {3000, 4000}};
    StackMatcher matcher(steps, python_, builder_);
    matcher.Match(ops_, samples_);
    counts_ = matcher.counts();
    for (const Op& op : ops_) builder_.Add(op);
    trace_ = builder_.Build();
    std::vector<std::string> lines;
    for (size_t i = from; i < ops_.size(); ++i) {
      lines.emplace_back(
          ops_[i].stack == kNone
              ? "-"
              : trace_.name(trace_.stacks()[ops_[i].stack].frames[0]));
    }
    return lines;
  }

  TraceBuilder builder_;
  RowId thread_ = kNone;
  std::vector<Op> ops_;
  std::vector<StackSample> samples_;
  PythonSamples python_;
  StackCounts counts_;
  Trace trace_;
};

TEST_F(StackMatcherTest, GivesTheSameCallOfALaterStepTheSameLine) {
  Add(1100, 1110, "aten::item", "train.py(1): f");
  Add(1200, 1210, "aten::add", "train.py(2): f");
  Add(1300, 1310, "aten::item", "train.py(3): f");
  for (int64_t step : {2000, 3000}) {
    Add(step + 100, step + 110, "aten::item");
    Add(step + 200, step + 210, "aten::add");
    Add(step + 300, step + 310, "aten::item");
  }
  EXPECT_THAT(Lines(3), ElementsAre("train.py(1): f", "train.py(2): f",
                                    "train.py(3): f", "train.py(1): f",
                                    "train.py(2): f", "train.py(3): f"));
  EXPECT_EQ(counts_.matched, 6);
  EXPECT_EQ(counts_.unmatched, 0);
}

TEST_F(StackMatcherTest, LooksOnlyAtOperatorsThatAreInsideNoOther) {
  Add(1100, 1200, "aten::linear", "a.py(1): f");
  Add(1110, 1120, "aten::add");
  Add(1300, 1310, "aten::add", "a.py(2): f");
  // If the inner operator counted, the outer one would be the second.
  Add(2100, 2200, "aten::linear");
  Add(2110, 2120, "aten::add");
  Add(2300, 2310, "aten::add");
  EXPECT_THAT(Lines(3), ElementsAre("a.py(1): f", "-", "a.py(2): f"));
  EXPECT_EQ(counts_.matched, 2);
}

TEST_F(StackMatcherTest, TellsOperatorsOfDifferentAutogradNodesApart) {
  for (int64_t step : {1000, 2000}) {
    const bool sampled = step == 1000;
    Add(step + 10, step + 50, "MulBackward0", "", OpKind::kBackward);
    Add(step + 20, step + 30, "aten::mul", sampled ? "a.py(1): g" : "");
    Add(step + 60, step + 90, "DivBackward0", "", OpKind::kBackward);
    Add(step + 70, step + 80, "aten::mul", sampled ? "a.py(2): g" : "");
  }
  std::swap(ops_[4].name, ops_[6].name);  // the engine chooses the order
  EXPECT_THAT(Lines(4), ElementsAre("-", "a.py(2): g", "-", "a.py(1): g"));
}

TEST_F(StackMatcherTest, NamesNoLineWhereAStepRunsAChainMoreOrLessOften) {
  Add(1100, 1110, "aten::add", "a.py(1): f");
  Add(1200, 1210, "aten::add", "a.py(2): f");
  Add(1300, 1310, "aten::mul", "a.py(3): f");
  Add(2100, 2110, "aten::add");  // the first or the second?
  Add(2200, 2210, "aten::mul");
  Add(2300, 2310, "aten::mul");  // all mul have the same line
  Add(2400, 2410, "aten::div");  // not in the sampled step
  EXPECT_THAT(Lines(3), ElementsAre("-", "a.py(3): f", "a.py(3): f", "-"));
  EXPECT_EQ(counts_.matched, 2);
  EXPECT_EQ(counts_.unmatched, 2);
}

TEST_F(StackMatcherTest, AStackTakenAgainThatDiffersTakesTheLinesOfItsChain) {
  Add(1100, 1110, "aten::add", "a.py(1): f");
  Add(1200, 1210, "aten::add", "a.py(2): f");
  Add(1300, 1310, "aten::mul", "a.py(3): f");
  Add(2100, 2110, "aten::add", "a.py(2): f");  // the branches swapped
  Add(2200, 2210, "aten::add");
  Add(2300, 2310, "aten::mul", "a.py(3): f");
  EXPECT_THAT(Lines(3), ElementsAre("a.py(2): f", "-", "a.py(3): f"));
  EXPECT_EQ(counts_.checked, 2);
  EXPECT_EQ(counts_.differs, 1);
}

TEST_F(StackMatcherTest, AValidationInsideAStepGetsNoLinesOfTheTraining) {
  Add(1100, 1110, "aten::linear", "a.py(1): train");
  ops_.back().sequence = 7;
  Add(2100, 2110, "aten::linear");
  ops_.back().sequence = 8;
  Add(2200, 2210, "aten::linear");  // under no_grad()
  Add(2300, 2310, "aten::linear", "a.py(2): validate");
  EXPECT_THAT(Lines(1),
              ElementsAre("a.py(1): train", "-", "a.py(2): validate"));
  EXPECT_EQ(counts_.matched, 1);
  EXPECT_EQ(counts_.unmatched, 2);
  EXPECT_EQ(counts_.differs, 0);
}

TEST_F(StackMatcherTest, AStepThatRunsAChainMoreOftenSaysNothingAboutOthers) {
  Add(1100, 1110, "aten::add", "a.py(1): f");
  Add(2100, 2110, "aten::add");
  Add(2200, 2210, "aten::add", "a.py(2): g");
  EXPECT_THAT(Lines(1), ElementsAre("-", "a.py(2): g"));
  EXPECT_EQ(counts_.checked, 1);
  EXPECT_EQ(counts_.unmatched, 2);
  EXPECT_EQ(counts_.differs, 0);
}

TEST_F(StackMatcherTest, LeavesAThreadAloneThatWasNotSampled) {
  Add(1100, 1110, "aten::add");
  Add(2100, 2110, "aten::add");
  EXPECT_THAT(Lines(), ElementsAre("-", "-"));
  EXPECT_EQ(counts_.unmatched, 0);
}

TEST_F(StackMatcherTest, KeepsAStackThatWasTakenInsideAnOperator) {
  Add(1100, 1200, "aten::item", "a.py(1): f");
  Add(1110, 1120, "aten::_local_scalar_dense", "a.py(1): f");
  Add(2100, 2200, "aten::item");
  Add(2110, 2120, "aten::_local_scalar_dense", "a.py(9): f");
  EXPECT_THAT(Lines(2), ElementsAre("a.py(1): f", "a.py(9): f"));
  EXPECT_EQ(counts_.checked, 0);
}

TEST_F(StackMatcherTest, BlocksCalledInALoopAreModulesOfTheirOwn) {
  std::vector<std::string> expected;
  for (uint64_t block = 0; block < 32; ++block) {
    const auto at = static_cast<int64_t>(1000 + 20 * block);
    // Two operators in each block, and the model around all blocks.
    AddIn(at, at + 5, {100, 1 + block});
    AddIn(at + 6, at + 11, {100, 1 + block});
    python_.modules[1 + block] = {"blocks." + std::to_string(block), "Block"};
    expected.push_back("blocks." + std::to_string(block));
  }
  python_.modules[100] = {"", "Net"};
  for (int64_t step : {2000, 3000}) {
    for (int64_t block = 0; block < 32; ++block) {
      const int64_t at = step + 20 * block;
      Add(at, at + 5, "aten::linear");
      Add(at + 6, at + 11, "aten::linear");
    }
  }
  Lines();
  std::vector<std::string> blocks;
  std::vector<int64_t> models;
  for (const Range& range : trace_.ranges()) {
    if (range.begin_ns < 2000) continue;
    EXPECT_EQ(range.kind, RangeKind::kModule);
    if (trace_.name(range.detail) == "Net") {
      EXPECT_EQ(trace_.name(range.name), "Net");  // without a path
      models.push_back(range.end_ns - range.begin_ns);
      continue;
    }
    EXPECT_EQ(range.end_ns - range.begin_ns, 11);
    if (range.begin_ns < 3000) blocks.emplace_back(trace_.name(range.name));
  }
  EXPECT_EQ(blocks, expected);
  EXPECT_THAT(models, ElementsAre(31 * 20 + 11, 31 * 20 + 11));
}

TEST_F(StackMatcherTest, TheSameModuleCalledTwiceIsTwoRanges) {
  AddIn(1000, 1010, {1});
  AddIn(1020, 1030, {2});
  python_.modules[1] = python_.modules[2] = {"fc", "Linear"};
  Add(2000, 2010, "aten::linear");
  Add(2020, 2030, "aten::linear");
  Lines();
  ASSERT_EQ(trace_.ranges().size(), 4u);
  EXPECT_EQ(trace_.ranges()[2].begin_ns, 2000);
  EXPECT_EQ(trace_.ranges()[2].end_ns, 2010);
  EXPECT_EQ(trace_.ranges()[3].begin_ns, 2020);
}

}  // namespace
}  // namespace stepscope::torch_stack_decode_test
