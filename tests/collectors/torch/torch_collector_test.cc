#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <thread>

#include "torch_window.h"

namespace stepscope::torch_collector_test {
namespace {

using testing::Gt;
using testing::SizeIs;

at::Tensor Small() { return at::ones({4, 8}); }

TEST(TorchCollectorTest, RecordsOperatorsNestedAsTheyRan) {
  const at::Tensor a = Small();
  TorchWindow window;
  a.add(a);
  at::ones({2});
  const Trace trace = window.CloseAndBuild();
  ASSERT_THAT(OpsNamed(trace, "aten::add"), SizeIs(1));
  EXPECT_EQ(OpsNamed(trace, "aten::add")[0]->parent, kNone);
  ASSERT_THAT(OpsNamed(trace, "aten::empty"), SizeIs(1));
  EXPECT_EQ(ParentName(trace, *OpsNamed(trace, "aten::empty")[0]),
            "aten::ones");
  EXPECT_EQ(ParentName(trace, *OpsNamed(trace, "aten::fill_")[0]),
            "aten::ones");
  for (const Op& op : trace.ops()) {
    EXPECT_LE(op.begin_ns, op.end_ns);
    EXPECT_EQ(op.kind, OpKind::kOperator);
    EXPECT_EQ(trace.threads()[op.thread].torch_thread,
              at::RecordFunction::currentThreadId());
  }
  EXPECT_TRUE(trace.losses().empty());
}

TEST(TorchCollectorTest, WatchesWhatItWasAskedFor) {
  const Trace plain = TorchWindow().CloseAndBuild();
  EXPECT_TRUE(plain.watched(Kind::kOp));
  EXPECT_TRUE(plain.watched(Kind::kRange));
  EXPECT_TRUE(plain.watched(Kind::kCommunication));
  EXPECT_FALSE(plain.watched(Kind::kOpShapes));
  EXPECT_FALSE(plain.watched(Kind::kMemory));
  EXPECT_FALSE(plain.watched(Kind::kOpStacks));
  EXPECT_FALSE(plain.run().record_shapes);
  const Trace full =
      TorchWindow(
          {.record_shapes = true, .record_memory = true, .with_stack = true})
          .CloseAndBuild();
  EXPECT_TRUE(full.watched(Kind::kOpShapes));
  EXPECT_TRUE(full.watched(Kind::kMemory));
  EXPECT_TRUE(full.watched(Kind::kOpStacks));
  EXPECT_TRUE(full.run().record_shapes);
  EXPECT_TRUE(full.run().profile_memory);
  EXPECT_TRUE(full.run().with_stack);
}

TEST(TorchCollectorTest, CalibratesTheCostOfAnOperatorWithoutLeavingATrace) {
  const Trace trace = TorchWindow().CloseAndBuild();
  EXPECT_GT(trace.run().op_cost_ns, 1);
  EXPECT_LT(trace.run().op_cost_ns, 100000);
  EXPECT_TRUE(trace.ops().empty());
}

TEST(TorchCollectorTest, RecordsNothingAfterStop) {
  const at::Tensor a = Small();
  TorchWindow window;
  window.Stop();
  a.add(a);
  EXPECT_TRUE(window.CloseAndBuild().ops().empty());
}

TEST(TorchCollectorTest, NeedsOpenBuffersToStart) {
  const auto collector = MakeTorchCollector({});
  EXPECT_EQ(collector->Start().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(collector->Stop().status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(TorchCollectorTest, RefusesToRecordEverythingTwice) {
  TorchWindow window;
  const auto second = MakeTorchCollector({});
  EXPECT_EQ(second->Start().code(), absl::StatusCode::kFailedPrecondition);
  window.Stop();
  EXPECT_TRUE(second->Start().ok());
  EXPECT_TRUE(second->Stop().ok());
}

TEST(TorchCollectorTest, RecordsUserScopesAsRangesWithTheirNames) {
  TorchWindow window;
  {
    // The text is freed when the scope ends.
    const std::string name = std::string("epoch ") + std::to_string(7);
    RECORD_USER_SCOPE(name);
    Small();
  }
  {
    RECORD_USER_SCOPE(
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
  }
  { RECORD_USER_SCOPE("Optimizer.step#SGD.step"); }
  const Trace trace = window.CloseAndBuild();
  ASSERT_THAT(trace.ranges(), SizeIs(3));
  EXPECT_EQ(trace.name(trace.ranges()[0].name), "epoch 7");
  EXPECT_EQ(trace.ranges()[0].kind, RangeKind::kUser);
  EXPECT_EQ(trace.ranges()[1].kind, RangeKind::kLoader);
  EXPECT_EQ(trace.ranges()[2].kind, RangeKind::kOptimizer);
  const Op& ones = *OpsNamed(trace, "aten::ones")[0];
  EXPECT_EQ(ones.parent, kNone);  // a range is no operator
  EXPECT_GE(ones.begin_ns, trace.ranges()[0].begin_ns);
  EXPECT_LE(ones.end_ns, trace.ranges()[0].end_ns);
}

TEST(TorchCollectorTest, TakesProfilerStepScopesForSteps) {
  TorchWindow window;
  { RECORD_USER_SCOPE("ProfilerStep#12"); }
  { RECORD_USER_SCOPE("ProfilerStep#twelve"); }
  const Trace trace = window.CloseAndBuild();
  ASSERT_THAT(trace.steps(), SizeIs(1));
  EXPECT_EQ(trace.steps()[0].number, 12);
  ASSERT_THAT(trace.ranges(), SizeIs(1));
  EXPECT_EQ(trace.name(trace.ranges()[0].name), "ProfilerStep#twelve");
}

TEST(TorchCollectorTest, CopiesTheNamesOfFunctionsWithoutASchema) {
  TorchWindow window;
  for (int i = 0; i < 3; ++i) {
    // Too long for the string's internal buffer, so that it is on the heap.
    const std::string name =
        "a function of the user's own, number " + std::to_string(i);
    RECORD_FUNCTION(name, c10::ArrayRef<const c10::IValue>{});
  }
  { RECORD_FUNCTION("short", c10::ArrayRef<const c10::IValue>{}); }
  const Trace trace = window.CloseAndBuild();
  ASSERT_THAT(trace.ops(), SizeIs(4));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(trace.name(trace.ops()[i].name),
              "a function of the user's own, number " + std::to_string(i));
  }
  EXPECT_EQ(trace.name(trace.ops()[3].name), "short");
}

TEST(TorchCollectorTest, LinksBackwardNodesToTheirForwardOperators) {
  at::Tensor x = Small().requires_grad_(true);
  TorchWindow window;
  at::Tensor y = x.mul(x).relu().sum();
  torch::autograd::backward({y}, {});
  const Trace trace = window.CloseAndBuild();
  for (const auto& [node, forward] : {std::pair("MulBackward0", "aten::mul"),
                                      std::pair("ReluBackward0", "aten::relu"),
                                      std::pair("SumBackward0", "aten::sum")}) {
    ASSERT_THAT(OpsNamed(trace, node), SizeIs(1)) << node;
    const Op& op = *OpsNamed(trace, node)[0];
    EXPECT_EQ(op.kind, OpKind::kBackward);
    EXPECT_GE(op.sequence, 0);
    EXPECT_EQ(op.forward_thread, at::RecordFunction::currentThreadId());
    ASSERT_NE(op.forward, kNone) << node;
    EXPECT_EQ(trace.name(trace.ops()[op.forward].name), forward);
    EXPECT_EQ(trace.ops()[op.forward].sequence, op.sequence);
    EXPECT_EQ(ParentName(trace, op),
              std::string("autograd::engine::evaluate_function: ") + node);
    EXPECT_EQ(trace.ops()[op.parent].kind, OpKind::kBackward);
    EXPECT_EQ(trace.ops()[op.parent].forward, op.forward);
  }
  EXPECT_THAT(OpsNamed(trace,
                       "autograd::engine::evaluate_function: "
                       "torch::autograd::AccumulateGrad"),
              SizeIs(1));
}

TEST(TorchCollectorTest, EndsOperatorsThatThrow) {
  const at::Tensor a = at::ones({2, 3});
  const at::Tensor b = at::ones({4, 5});
  TorchWindow window;
  {
    RECORD_USER_SCOPE("around");
    EXPECT_THROW(a.mm(b), c10::Error);
    a.add(a);
  }
  const Trace trace = window.CloseAndBuild();
  ASSERT_THAT(OpsNamed(trace, "aten::mm"), SizeIs(1));
  EXPECT_LE(OpsNamed(trace, "aten::mm")[0]->end_ns,
            OpsNamed(trace, "aten::add")[0]->begin_ns);
  EXPECT_EQ(OpsNamed(trace, "aten::add")[0]->parent, kNone);
}

TEST(TorchCollectorTest, KeepsAScopeThatOutlivesTheWindow) {
  TorchWindow window;
  std::optional<Trace> trace;
  {
    RECORD_USER_SCOPE("outlives");
    trace = window.CloseAndBuild();
  }
  ASSERT_THAT(trace->ranges(), SizeIs(1));
  EXPECT_GT(trace->ranges()[0].end_ns, trace->ranges()[0].begin_ns);
}

TEST(TorchCollectorTest, IgnoresTheEndOfAScopeFromTheLastWindow) {
  auto first = std::make_unique<TorchWindow>();
  std::optional<Trace> trace;
  {
    RECORD_USER_SCOPE("first");
    first->CloseAndBuild();
    TorchWindow second;
    Small();
    guard.end();
    trace = second.CloseAndBuild();
  }
  EXPECT_TRUE(trace->ranges().empty());
  ASSERT_THAT(OpsNamed(*trace, "aten::ones"), SizeIs(1));
  EXPECT_TRUE(trace->losses().empty());
}

}  // namespace
}  // namespace stepscope::torch_collector_test
