#include "step_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "flags/parse_options.h"
#include "learner.h"

namespace resnet::step_graph_test {
namespace {

using ::testing::ElementsAre;

// Does on a CPU what a graph does on a device: the test makes sure that work
// between Begin() and End() does not count, and Replay() calls `again`.
class FakeWork final : public CapturedWork {
 public:
  FakeWork(std::vector<std::string>* calls, std::function<void()>* again)
      : calls_(calls), again_(again) {}
  void Begin() override { calls_->push_back("begin"); }
  void End() override { calls_->push_back("end"); }
  void Replay() override {
    calls_->push_back("replay");
    (*again_)();
  }

 private:
  std::vector<std::string>* calls_;
  std::function<void()>* again_;
};

Batch Filled(float value) {
  return {torch::full({2, 3}, value), torch::zeros({2}, torch::kInt64)};
}

TEST(StepGraphTest, EagerStepsThenOneCaptureThenReplays) {
  std::vector<std::string> calls;
  std::function<void()> again;
  torch::Tensor loss = torch::zeros({});
  StepGraph graph(std::make_unique<FakeWork>(&calls, &again));
  auto step = [&](const Batch& batch) {
    calls.push_back("step");
    loss.copy_(batch.images.sum());
    again = [&loss, images = batch.images] { loss.copy_(images.sum()); };
    return loss;
  };
  for (int i = 1; i <= StepGraph::kEagerSteps + 3; ++i) {
    torch::Tensor seen = graph.Run(Filled(static_cast<float>(i)), step);
    EXPECT_EQ(seen.item<float>(), 6.0f * static_cast<float>(i)) << i;
  }
  EXPECT_THAT(calls, ElementsAre("step", "step", "step", "begin", "step", "end",
                                 "replay", "replay", "replay"));
}

TEST(StepGraphTest, AnotherSizeIsRefused) {
  std::vector<std::string> calls;
  std::function<void()> again = [] {};
  StepGraph graph(std::make_unique<FakeWork>(&calls, &again));
  auto step = [](const Batch& batch) { return batch.images.sum(); };
  for (int i = 0; i <= StepGraph::kEagerSteps; ++i) graph.Run(Filled(1), step);
  Batch larger{torch::ones({4, 3}), torch::zeros({4}, torch::kInt64)};
  EXPECT_THROW(graph.Run(larger, step), c10::Error);
}

// On a CPU, capturing a step also runs it, and this replay does nothing: the
// first four steps equal those of a learner without a graph.
TEST(StepGraphTest, ALearnerTrainsThroughIt) {
  std::vector<const char*> args = {"--data", "fakecifar", "--batch",
                                   "4",      "--sgd",     "fused"};
  Options options = *ParseOptions(args);
  ImageBatches images(MakeFakeCifar(1, 10), {.side = options.side});
  Batch batch = images.get_batch({0, 1, 2, 3});
  std::vector<std::string> calls;
  std::function<void()> again = [] {};
  Learner plain(options, 10, torch::kCPU);
  Learner captured(options, 10, torch::kCPU,
                   std::make_unique<FakeWork>(&calls, &again));
  for (int i = 0; i <= StepGraph::kEagerSteps; ++i) {
    double expected = plain.Step(batch).item<double>();
    EXPECT_NEAR(captured.Step(batch).item<double>(), expected, 1e-4) << i;
  }
  EXPECT_THAT(calls, ElementsAre("begin", "end", "replay"));
}

TEST(CudaGraphTest, ItLoadsOrSaysWhyNot) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "captured by the GPU tests";
  absl::StatusOr<std::unique_ptr<CapturedWork>> work = MakeCudaGraph();
  if (work.ok()) return;  // true if the wheel has CUDA
  EXPECT_TRUE(absl::IsUnavailable(work.status()));
  EXPECT_NE(std::string(work.status().message()).find("--cuda-graph"),
            std::string::npos);
}

}  // namespace
}  // namespace resnet::step_graph_test
