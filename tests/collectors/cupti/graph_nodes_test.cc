// Tests that kernels of CUDA graphs get the operators that were open at their
// capture.
#include "graph_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "collectors/cupti/collector_fixture.h"

namespace stepscope::graph_nodes_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns what a test sets, and counts calls.
class FakeScopes : public CaptureScopes {
 public:
  void Begin() override { ++begun; }
  void End() override { ++ended; }
  CapturedAt Here() const override {
    if (throws) throw std::runtime_error("no memory");
    return at;
  }
  CapturedAt at;
  bool throws = false;
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
};

// Returns a new ID. The process's table of nodes outlives a test, so each test
// needs its own IDs, as with the driver.
uint64_t NewNode() {
  static std::atomic<uint64_t> last{1000};
  return ++last;
}

class GraphNodesTest : public AnyCupti {
 protected:
  std::unique_ptr<Collector> MakeListening() {
    CuptiOptions options;
    options.capture_scopes = scopes_;
    return Make(std::move(options));
  }
  // Captures a graph of one node inside `ops` and instantiates it. Returns the
  // ID of the node that runs.
  uint64_t Capture(std::vector<std::string> ops, std::string module = "") {
    scopes_->at = {std::move(ops), std::move(module)};
    const uint64_t captured = NewNode();
    const uint64_t runs = NewNode();
    fake_.BeginCapture();
    fake_.CreateNode(captured);
    fake_.EndCapture();
    fake_.CloneNode(runs, captured);
    return runs;
  }
  void Replay(uint64_t node, uint32_t correlation) {
    const uint64_t now = fake_.ClockNow();
    fake_.Queue(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, /*cbid=*/311, now,
                           now + 500, correlation));
    auto kernel = KernelRecord(
        {.start = now + 1000, .end = now + 2000, .correlation = correlation},
        "gemm");
    kernel.graphId = 7;
    kernel.graphNodeId = node;
    fake_.Queue(kernel);
  }
  static std::vector<std::string> OpsOf(const Trace& trace, size_t kernel) {
    std::vector<std::string> ops;
    const RowId row = trace.kernels()[kernel].captured_ops;
    if (row == kNone) return ops;
    for (const NameId frame : trace.stacks()[row].frames) {
      ops.emplace_back(trace.name(frame));
    }
    return ops;
  }
  static std::string ModuleOf(const Trace& trace, size_t kernel) {
    return std::string(trace.name(trace.kernels()[kernel].captured_module));
  }

  std::shared_ptr<FakeScopes> scopes_ = std::make_shared<FakeScopes>();
};
INSTANTIATE_TEST_SUITE_P(Cuda, GraphNodesTest,
                         testing::ValuesIn(kCuptiVersions), NameOfVersion);

TEST_P(GraphNodesTest, AReplayedKernelHasTheOpsOfACaptureBeforeTheWindow) {
  auto collector = MakeListening();
  collector->Arm();
  const uint64_t node = Capture({"aten::addmm", "aten::linear"}, "layer1.0.fc");
  ASSERT_TRUE(collector->Start().ok());
  Replay(node, 1);
  Replay(node, 2);
  const Trace trace = StopAndBuild(*collector);
  ASSERT_EQ(trace.kernels().size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_THAT(OpsOf(trace, i), ElementsAre("aten::addmm", "aten::linear"));
    EXPECT_EQ(ModuleOf(trace, i), "layer1.0.fc");
  }
  // Both kernels share one stored list.
  EXPECT_EQ(trace.kernels()[0].captured_ops, trace.kernels()[1].captured_ops);
  EXPECT_TRUE(trace.losses().empty());
}

TEST_P(GraphNodesTest, ACaptureInTheWindowNeedsNoArming) {
  auto collector = MakeListening();
  ASSERT_TRUE(collector->Start().ok());
  Replay(Capture({"aten::relu"}), 1);
  const Trace trace = StopAndBuild(*collector);
  ASSERT_EQ(trace.kernels().size(), 1u);
  EXPECT_THAT(OpsOf(trace, 0), ElementsAre("aten::relu"));
  EXPECT_EQ(ModuleOf(trace, 0), "");
}

TEST_P(GraphNodesTest, AGraphOfOneWindowIsKnownInTheNext) {
  auto collector = MakeListening();
  ASSERT_TRUE(collector->Start().ok());
  const uint64_t node = Capture({"aten::relu"});
  (void)StopAndBuild(*collector);
  ASSERT_TRUE(collector->Start().ok());
  Replay(node, 1);
  const Trace trace = StopAndBuild(*collector);
  ASSERT_EQ(trace.kernels().size(), 1u);
  EXPECT_THAT(OpsOf(trace, 0), ElementsAre("aten::relu"));
}

TEST_P(GraphNodesTest, KernelsOfAnUnseenCaptureAreCounted) {
  const uint64_t unseen = Capture({"aten::mm"});  // no collector listens yet
  auto collector = MakeListening();
  collector->Arm();
  const uint64_t seen = Capture({"aten::add"});
  ASSERT_TRUE(collector->Start().ok());
  Replay(unseen, 1);
  Replay(seen, 2);
  QueueKernel(3);  // belongs to no graph
  const Trace trace = StopAndBuild(*collector);
  ASSERT_EQ(trace.kernels().size(), 3u);
  int with_ops = 0;
  for (size_t i = 0; i < 3; ++i) with_ops += !OpsOf(trace, i).empty();
  EXPECT_EQ(with_ops, 1);
  EXPECT_EQ(LossCount(trace, "cupti-unknown-captures"), 1);
}

TEST_P(GraphNodesTest, WithoutScopesNobodyListensAndNothingIsLost) {
  auto collector = Make();
  collector->Arm();
  EXPECT_FALSE(fake_.subscribed());
  ASSERT_TRUE(collector->Start().ok());
  Replay(Capture({"aten::mm"}), 1);
  const Trace trace = StopAndBuild(*collector);
  ASSERT_EQ(trace.kernels().size(), 1u);
  EXPECT_EQ(trace.kernels()[0].captured_ops, kNone);
  EXPECT_TRUE(trace.losses().empty());
}

// A graph inside a graph is copied twice.
TEST_P(GraphNodesTest, CopiesOfCopiesAreFollowed) {
  auto collector = MakeListening();
  ASSERT_TRUE(collector->Start().ok());
  const uint64_t copy = Capture({"aten::relu"});
  const uint64_t second = NewNode();
  fake_.CloneNode(second, copy);
  Replay(second, 1);
  const Trace trace = StopAndBuild(*collector);
  EXPECT_THAT(OpsOf(trace, 0), ElementsAre("aten::relu"));
}

TEST_P(GraphNodesTest, OnlyKernelsOfOpenOpsHaveAPlace) {
  auto collector = MakeListening();
  ASSERT_TRUE(collector->Start().ok());
  const size_t before = ProcessGraphNodes().size();
  scopes_->at = {{"aten::copy_"}, ""};
  fake_.BeginCapture();
  fake_.CreateNode(NewNode(), CU_GRAPH_NODE_TYPE_MEMCPY);
  scopes_->at = {};
  fake_.CreateNode(NewNode());
  fake_.EndCapture();
  fake_.CloneNode(NewNode(), NewNode());
  EXPECT_EQ(ProcessGraphNodes().size(), before);
  (void)StopAndBuild(*collector);
}

// Both the runtime and the driver report a capture.
TEST_P(GraphNodesTest, OpsAreFollowedFromTheFirstCapturesBeginToTheLastsEnd) {
  auto collector = MakeListening();
  ASSERT_TRUE(collector->Start().ok());
  fake_.BeginCapture(1);
  EXPECT_EQ(scopes_->begun, 1);
  fake_.BeginCapture(2);
  fake_.BeginCapture(3, /*code=*/900);  // the call failed
  EXPECT_EQ(scopes_->begun, 1);
  fake_.EndCapture(1);
  EXPECT_EQ(scopes_->ended, 0);
  fake_.EndCapture(2, /*code=*/901);  // invalid, but the capture ends anyway
  EXPECT_EQ(scopes_->ended, 1);
  fake_.EndCapture(2);
  EXPECT_EQ(scopes_->ended, 1);
  // The window closes during a capture.
  fake_.BeginCapture(1);
  EXPECT_EQ(scopes_->begun, 2);
  (void)StopAndBuild(*collector);
  EXPECT_EQ(scopes_->ended, 2);
  fake_.EndCapture(1);
  EXPECT_EQ(scopes_->ended, 2);
}

TEST_P(GraphNodesTest, ArmWaitsUntilTheProgramUsesCuda) {
  auto collector = MakeListening();
  driver_.in_use = absl::UnavailableError("not yet");
  collector->Arm();
  EXPECT_FALSE(fake_.subscribed());
  driver_.in_use = absl::OkStatus();
  collector->Arm();
  EXPECT_TRUE(fake_.subscribed());
  EXPECT_TRUE(fake_.enabled().empty());  // nothing is recorded
  const int calls = fake_.call_count();
  collector->Arm();
  EXPECT_EQ(fake_.call_count(), calls);
  collector.reset();
  fake_.ProgramCalls();  // CUPTI is detached when a call returns
  ExpectNothingLeftBehind();
  EXPECT_EQ(fake_.finalized(), Detachments(1));
}

// Between windows, another tool may use CUPTI.
TEST_P(GraphNodesTest, AfterTheFirstWindowNobodyListens) {
  auto collector = MakeListening();
  collector->Arm();
  ASSERT_TRUE(collector->Start().ok());
  (void)StopAndBuild(*collector);
  collector->Arm();
  EXPECT_FALSE(fake_.subscribed());
}

TEST_P(GraphNodesTest, WhereAnotherToolHoldsCuptiTheStartSaysSo) {
  auto collector = MakeListening();
  fake_.HoldBy("Nsight Systems");
  collector->Arm();
  const absl::Status status = collector->Start();
  EXPECT_THAT(Message(status), HasSubstr("Nsight Systems"));
  fake_.HoldBy("");
  ASSERT_TRUE(collector->Start().ok());
  Replay(Capture({"aten::relu"}), 1);
  EXPECT_THAT(OpsOf(StopAndBuild(*collector), 0), ElementsAre("aten::relu"));
}

TEST_P(GraphNodesTest, WithoutCallbacksTheRestIsRecorded) {
  auto collector = MakeListening();
  fake_.FailAll("EnableCallback", CUPTI_ERROR_NOT_SUPPORTED);
  ASSERT_TRUE(collector->Start().ok());
  Replay(Capture({"aten::relu"}), 1);
  const Trace trace = StopAndBuild(*collector);
  ASSERT_EQ(trace.kernels().size(), 1u);
  EXPECT_THAT(LossDetail(trace, "cupti-captures-unknown"),
              HasSubstr("their kernels have no operators"));
}

TEST_P(GraphNodesTest, NothingIsThrownIntoTheProgram) {
  auto collector = MakeListening();
  ASSERT_TRUE(collector->Start().ok());
  scopes_->throws = true;
  EXPECT_NO_THROW((void)Capture({"aten::relu"}));
  fake_.FailAll("GetGraphNodeId", CUPTI_ERROR_UNKNOWN);
  scopes_->throws = false;
  (void)Capture({"aten::relu"});
  (void)StopAndBuild(*collector);
}

TEST(GraphNodesTableTest, OfTooManyNodesTheOldestAreForgotten) {
  FakeCupti fake;
  std::shared_ptr<CuptiApi> api = fake.Api();
  CUpti_SubscriberHandle subscriber = nullptr;
  std::string holder;
  ASSERT_EQ(api->Subscribe(&subscriber, &OnGraphEvent, nullptr, &holder),
            CUPTI_SUCCESS);
  const auto scopes = std::make_shared<FakeScopes>();
  scopes->at = {{"aten::relu"}, ""};
  GraphNodes nodes(/*most_nodes=*/2);
  ASSERT_EQ(nodes.Listen(api, subscriber, scopes), CUPTI_SUCCESS);
  CUpti_GraphData graph = {};
  graph.nodeType = CU_GRAPH_NODE_TYPE_KERNEL;
  CUpti_ResourceData resource = {};
  resource.resourceDescriptor = &graph;
  for (uint64_t node : {1, 2, 2, 3}) {
    graph.node = std::bit_cast<CUgraphNode>(node);
    nodes.On(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
             &resource);
  }
  EXPECT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes.Find(1), nullptr);
  ASSERT_NE(nodes.Find(2), nullptr);
  EXPECT_THAT(nodes.Find(3)->ops, ElementsAre("aten::relu"));
  nodes.StopListening();
  graph.node = std::bit_cast<CUgraphNode>(uint64_t{4});
  nodes.On(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
           &resource);
  EXPECT_EQ(nodes.Find(4), nullptr);
}

}  // namespace
}  // namespace stepscope::graph_nodes_test
