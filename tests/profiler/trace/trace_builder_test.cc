#include <gtest/gtest.h>
#include <stepscope/trace_builder.h>

#include <algorithm>
#include <random>
#include <vector>

#include "support/trace_copy.h"

namespace stepscope::trace_builder_test {
namespace {

class TraceBuilderTest : public testing::Test {
 protected:
  TraceBuilder builder_;
  RowId main_ = builder_.ThreadRow(1, 10);

  Op MakeOp(int64_t begin, int64_t end, std::string_view name,
            int64_t sequence = -1) {
    return {.begin_ns = begin,
            .end_ns = end,
            .sequence = sequence,
            .name = builder_.Intern(name),
            .thread = main_};
  }
  static RowId RowNamed(const Trace& trace, std::string_view name) {
    for (RowId row = 0; row < trace.ops().size(); ++row) {
      if (trace.name(trace.ops()[row].name) == name) return row;
    }
    return kNone;
  }
};

TEST_F(TraceBuilderTest, SortsByBeginWithTheOuterRowFirst) {
  builder_.Add(MakeOp(5, 6, "late"));
  builder_.Add(MakeOp(1, 2, "inner"));
  builder_.Add(MakeOp(1, 4, "outer"));
  const Trace trace = builder_.Build();
  ASSERT_EQ(trace.ops().size(), 3u);
  EXPECT_EQ(trace.name(trace.ops()[0].name), "outer");
  EXPECT_EQ(trace.name(trace.ops()[1].name), "inner");
  EXPECT_EQ(trace.name(trace.ops()[2].name), "late");
}

TEST_F(TraceBuilderTest, FindsTheInnermostParentOnTheSameThreadOnly) {
  Op other = MakeOp(0, 100, "other thread");
  other.thread = builder_.ThreadRow(1, 11);
  builder_.Add(other);
  builder_.Add(MakeOp(10, 50, "a"));
  builder_.Add(MakeOp(12, 30, "b"));
  builder_.Add(MakeOp(14, 20, "c"));
  builder_.Add(MakeOp(30, 40, "d"));
  builder_.Add(MakeOp(50, 60, "e"));
  const Trace trace = builder_.Build();
  const auto parent = [&](std::string_view name) {
    return trace.ops()[RowNamed(trace, name)].parent;
  };
  EXPECT_EQ(parent("a"), kNone);
  EXPECT_EQ(parent("b"), RowNamed(trace, "a"));
  EXPECT_EQ(parent("c"), RowNamed(trace, "b"));
  EXPECT_EQ(parent("d"), RowNamed(trace, "a"));
  EXPECT_EQ(parent("e"), kNone);
}

TEST_F(TraceBuilderTest, ToleratesRoundingOnlyWhereAsked) {
  const auto parent_of_child = [](int64_t tolerance) {
    TraceBuilder builder;
    const RowId thread = builder.ThreadRow(1, 1);
    builder.Add(Op{.begin_ns = 0, .end_ns = 10'000, .thread = thread});
    builder.Add(Op{.begin_ns = 5'000, .end_ns = 11'000, .thread = thread});
    return builder.Build({.nesting_tolerance_ns = tolerance}).ops()[1].parent;
  };
  EXPECT_EQ(parent_of_child(0), kNone);
  EXPECT_EQ(parent_of_child(999), kNone);
  EXPECT_EQ(parent_of_child(1000), 0u);
}

TEST_F(TraceBuilderTest,
       LinksBackwardToTheForwardOpThatHeldTheSequenceNumberLast) {
  builder_.thread(main_).torch_thread = 7;
  builder_.Add(MakeOp(0, 10, "peeked only", 3));
  builder_.Add(MakeOp(10, 20, "forward", 3));
  Op elsewhere = MakeOp(21, 22, "same number, other thread", 3);
  elsewhere.thread = builder_.ThreadRow(1, 12);
  builder_.thread(elsewhere.thread).torch_thread = 8;
  builder_.Add(elsewhere);
  Op backward = MakeOp(30, 40, "backward", 3);
  backward.kind = OpKind::kBackward;
  backward.forward_thread = 7;
  backward.thread = builder_.ThreadRow(1, 11);
  builder_.Add(backward);
  builder_.Add(MakeOp(50, 60, "after", 3));
  const Trace trace = builder_.Build();
  EXPECT_EQ(trace.ops()[RowNamed(trace, "backward")].forward,
            RowNamed(trace, "forward"));
  EXPECT_EQ(trace.ops()[RowNamed(trace, "forward")].forward, kNone);
}

// The engine's ranges are recorded as operators.
TEST_F(TraceBuilderTest, TheEnginesRangesArePartOfTheBackwardPass) {
  builder_.Add(
      MakeOp(0, 90, "autograd::engine::evaluate_function: MulBackward0"));
  builder_.Add(MakeOp(10, 20, "aten::isnan"));
  const Trace trace = builder_.Build();
  EXPECT_EQ(trace.ops()[0].kind, OpKind::kBackward);
  EXPECT_EQ(trace.ops()[1].kind, OpKind::kOperator);
}

// RecordFunction gives the node's number to the node alone. A node inside it,
// as of a checkpoint, is not the range's.
TEST_F(TraceBuilderTest, TheEnginesRangesBelongToTheForwardOpOfTheirNode) {
  builder_.Add(MakeOp(0, 10, "aten::mul", 3));
  builder_.Add(MakeOp(10, 20, "aten::exp", 4));
  const auto node = [&](int64_t begin, int64_t end, const std::string& name,
                        int64_t sequence) {
    Op op = MakeOp(begin, end, name, sequence);
    op.kind = OpKind::kBackward;
    builder_.Add(op);
  };
  builder_.Add(
      MakeOp(30, 90, "autograd::engine::evaluate_function: MulBackward0"));
  node(35, 60, "MulBackward0", 3);
  node(40, 50, "ExpBackward0", 4);
  const Trace trace = builder_.Build();
  EXPECT_EQ(trace.ops()[2].forward, RowNamed(trace, "aten::mul"));
  EXPECT_EQ(trace.ops()[2].sequence, 3);
  EXPECT_EQ(trace.ops()[4].forward, RowNamed(trace, "aten::exp"));
}

TEST_F(TraceBuilderTest, LinksAKernelToItsLaunchAndTheOpAroundIt) {
  builder_.Add(MakeOp(0, 100, "aten::linear"));
  builder_.Add(MakeOp(10, 50, "aten::addmm"));
  builder_.Add(RuntimeCall{
      .begin_ns = 20, .end_ns = 30, .correlation = 5, .thread = main_});
  Kernel kernel;
  kernel.begin_ns = 200;
  kernel.end_ns = 300;
  kernel.correlation = 5;
  builder_.Add(kernel);
  kernel.correlation = 6;
  builder_.Add(kernel);
  const Trace trace = builder_.Build();
  EXPECT_EQ(trace.kernels()[0].call, 0u);
  EXPECT_EQ(trace.kernels()[0].op, RowNamed(trace, "aten::addmm"));
  EXPECT_EQ(trace.kernels()[1].call, kNone);
}

TEST_F(TraceBuilderTest, TakesTheLatestEarlierCallWhereCorrelationsRepeat) {
  builder_.Add(RuntimeCall{
      .begin_ns = 10, .end_ns = 11, .correlation = 5, .thread = main_});
  builder_.Add(RuntimeCall{
      .begin_ns = 100, .end_ns = 110, .correlation = 5, .thread = main_});
  Memset memset;
  memset.correlation = 5;
  for (int64_t begin : {20, 120, 5}) {
    memset.begin_ns = memset.end_ns = begin;
    builder_.Add(memset);
  }
  const Trace trace = builder_.Build();
  EXPECT_EQ(trace.memsets()[0].call,
            0u);  // a launch, although the clocks differ slightly
  EXPECT_EQ(trace.memsets()[1].call, 0u);
  EXPECT_EQ(trace.memsets()[2].call, 1u);
}

TEST_F(TraceBuilderTest, PairsReleasesWithTheLatestAllocationOfThatAddress) {
  const auto event = [&](int64_t time, uint64_t address, int64_t bytes,
                         int32_t device) {
    builder_.Add(Allocation{.time_ns = time,
                            .address = address,
                            .bytes = bytes,
                            .device = device,
                            .thread = main_});
  };
  event(1, 0x100, 64, -1);
  event(2, 0x100, 64, 0);
  event(3, 0x100, -64, -1);
  event(4, 0x100, 32, -1);
  event(5, 0x200, -8, -1);
  const Trace trace = builder_.Build();
  EXPECT_EQ(trace.allocations()[0].other, 2u);
  EXPECT_EQ(trace.allocations()[2].other, 0u);
  EXPECT_EQ(trace.allocations()[1].other, kNone);
  EXPECT_EQ(trace.allocations()[3].other, kNone);
  EXPECT_EQ(trace.allocations()[4].other, kNone);
}

TEST_F(TraceBuilderTest, ClipsToTheWindowAndKeepsWorkLaunchedInIt) {
  builder_.Add(MakeOp(0, 50, "before"));
  builder_.Add(MakeOp(90, 110, "across the begin"));
  builder_.Add(MakeOp(190, 210, "across the end"));
  builder_.Add(MakeOp(200, 220, "after"));
  builder_.Add(RuntimeCall{
      .begin_ns = 50, .end_ns = 60, .correlation = 1, .thread = main_});
  builder_.Add(RuntimeCall{
      .begin_ns = 150, .end_ns = 160, .correlation = 2, .thread = main_});
  Kernel kernel;
  kernel.begin_ns = 120;
  kernel.end_ns = 130;
  kernel.correlation = 1;  // launched during warm-up
  builder_.Add(kernel);
  kernel.begin_ns = 500;
  kernel.end_ns = 600;
  kernel.correlation = 2;  // runs long after the host's window
  builder_.Add(kernel);
  const Trace trace =
      builder_.Build({.window_begin_ns = 100, .window_end_ns = 200});
  ASSERT_EQ(trace.ops().size(), 2u);
  EXPECT_EQ(trace.name(trace.ops()[0].name), "across the begin");
  EXPECT_EQ(trace.name(trace.ops()[1].name), "across the end");
  ASSERT_EQ(trace.kernels().size(), 1u);
  EXPECT_EQ(trace.kernels()[0].begin_ns, 500);
  EXPECT_EQ(trace.runtime_calls().size(), 1u);
}

TEST_F(TraceBuilderTest, StoresEqualInputsAndStacksOnce) {
  const OpInputs inputs = {{Argument{
      .type = builder_.Intern("float"), .dims = {2, 3}, .strides = {3, 1}}}};
  OpInputs other = inputs;
  other.arguments[0].strides = {1, 2};
  EXPECT_EQ(builder_.InternInputs(inputs), builder_.InternInputs(inputs));
  EXPECT_NE(builder_.InternInputs(inputs), builder_.InternInputs(other));
  const Stack stack = {
      {builder_.Intern("a.cc(1): f"), builder_.Intern("a.cc(9): main")}};
  EXPECT_EQ(builder_.InternStack(stack), builder_.InternStack(stack));
  EXPECT_NE(builder_.InternStack(stack), builder_.InternStack({}));
}

TEST_F(TraceBuilderTest, AddsUpALossMetAgain) {
  builder_.Add(Loss{.name = "buffer-full",
                    .detail = "d",
                    .count = 3,
                    .severity = Severity::kWarning});
  builder_.Add(Loss{.name = "buffer-full",
                    .detail = "d",
                    .count = 4,
                    .severity = Severity::kError});
  builder_.Add(Loss{.name = "truncated-file", .detail = "d", .count = 1});
  const Trace trace = builder_.Build();
  ASSERT_EQ(trace.losses().size(), 2u);
  EXPECT_EQ(trace.losses()[0].count, 7);
  EXPECT_EQ(trace.losses()[0].severity, Severity::kError);
}

TEST_F(TraceBuilderTest, StartsAfreshAfterBuild) {
  builder_.Add(MakeOp(0, 1, "a"));
  builder_.Watch(Kind::kOp);
  EXPECT_TRUE(builder_.Build().watched(Kind::kOp));
  const Trace second = builder_.Build();
  EXPECT_TRUE(second.ops().empty());
  EXPECT_TRUE(second.threads().empty());
  EXPECT_FALSE(second.watched(Kind::kOp));
}

// A simple model: the parent is the smallest op on the thread that encloses the
// child and precedes it.
TEST_F(TraceBuilderTest, AgreesWithAPlainSearchOnRandomNestsInAnyOrder) {
  std::mt19937 random(20261121);
  for (int round = 0; round < 50; ++round) {
    std::vector<Op> ops;
    // Makes a random nest by splitting intervals recursively.
    std::vector<std::pair<int64_t, int64_t>> open = {{0, 1'000'000}};
    while (!open.empty() && ops.size() < 60) {
      const auto [begin, end] = open.back();
      open.pop_back();
      if (end - begin < 8) continue;
      ops.push_back(MakeOp(begin, end, "op" + std::to_string(ops.size())));
      const int64_t middle =
          begin + 1 +
          static_cast<int64_t>(random() %
                               static_cast<uint64_t>(end - begin - 2));
      open.emplace_back(begin + 1, middle);
      open.emplace_back(middle, end - 1);
    }
    std::shuffle(ops.begin(), ops.end(), random);
    for (const Op& op : ops) builder_.Add(op);
    const Trace trace = builder_.Build();
    main_ = builder_.ThreadRow(1, 10);
    for (RowId row = 0; row < trace.ops().size(); ++row) {
      RowId expected = kNone;
      for (RowId other = 0; other < row; ++other) {
        if (trace.ops()[other].begin_ns <= trace.ops()[row].begin_ns &&
            trace.ops()[other].end_ns >= trace.ops()[row].end_ns) {
          expected = other;  // later rows are nested deeper
        }
      }
      ASSERT_EQ(trace.ops()[row].parent, expected)
          << "round " << round << " row " << row;
    }
  }
}

// torch.profiler with CUPTI 13.0 writes such files.
TEST_F(TraceBuilderTest, OnlyAGraphLaunchStartsTheWorkOfAGraph) {
  const auto call = [&](int64_t begin_ns, int64_t correlation,
                        const char* name) {
    RuntimeCall row;
    row.begin_ns = begin_ns;
    row.end_ns = begin_ns + 10;
    row.correlation = correlation;
    row.name = builder_.Intern(name);
    row.thread = main_;
    builder_.Add(row);
  };
  const auto node = [&](int64_t begin_ns, int64_t correlation) {
    Kernel row;
    row.begin_ns = begin_ns;
    row.end_ns = begin_ns + 10;
    row.correlation = correlation;
    row.graph = 5;
    builder_.Add(row);
  };
  call(100, 1, "cudaMemcpyAsync");  // before the window
  call(1100, 2, "cudaGraphLaunch");
  node(1200, 1);
  node(1300, 2);
  node(1400, 3);  // its launch was not recorded
  const Trace trace =
      builder_.Build({.window_begin_ns = 1000, .window_end_ns = 2000});
  ASSERT_EQ(trace.kernels().size(), 3u);  // the first one is not clipped
  EXPECT_EQ(trace.kernels()[0].call, kNone);
  EXPECT_EQ(trace.kernels()[1].call, 0u);
  EXPECT_EQ(trace.kernels()[2].correlation, 3);
  ASSERT_EQ(trace.losses().size(), 1u);
  EXPECT_EQ(trace.losses()[0].name, "wrong-graph-launch");
  EXPECT_EQ(trace.losses()[0].count, 1);
}

TEST_F(TraceBuilderTest, CopiesATraceRowForRow) {
  builder_.Add(MakeOp(0, 10, "a", 4));
  builder_.Add(Range{.begin_ns = 1,
                     .end_ns = 2,
                     .name = builder_.Intern("r"),
                     .thread = main_});
  builder_.Add(Step{.begin_ns = 0, .end_ns = 20, .number = 6, .thread = main_});
  builder_.run().name = "run";
  builder_.run().training_thread = main_;
  builder_.Watch(Kind::kOp);
  const Trace first = builder_.Build();
  TraceBuilder copier;
  copier.ThreadRow(9, 9);  // gives rows and names other IDs
  copier.Intern("something else");
  AddAll(first, copier);
  const Trace second = copier.Build();
  ASSERT_EQ(second.ops().size(), 1u);
  EXPECT_EQ(second.name(second.ops()[0].name), "a");
  EXPECT_EQ(second.threads()[second.ops()[0].thread].tid, 10);
  EXPECT_EQ(second.threads()[second.run().training_thread].tid, 10);
  EXPECT_EQ(second.name(second.ranges()[0].name), "r");
  EXPECT_EQ(second.steps()[0].number, 6);
  EXPECT_EQ(second.run().name, "run");
  EXPECT_TRUE(second.watched(Kind::kOp));
}

}  // namespace
}  // namespace stepscope::trace_builder_test
