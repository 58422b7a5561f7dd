// Tests which operators are open on a thread while a CUDA graph is captured.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/collectors.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <thread>
#include <vector>

namespace stepscope::torch_capture_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(TorchCaptureTest, SaysWhichOpsAreOpenInnermostFirst) {
  const auto scopes = MakeTorchCaptureScopes(TorchOptions());
  scopes->Begin();
  std::vector<std::string> inner;
  std::vector<std::string> after;
  {
    RECORD_FUNCTION("aten::linear", {});
    {
      RECORD_FUNCTION("aten::addmm", {});
      inner = scopes->Here().ops;
    }
    after = scopes->Here().ops;
  }
  EXPECT_THAT(inner, ElementsAre("aten::addmm", "aten::linear"));
  EXPECT_THAT(after, ElementsAre("aten::linear"));
  EXPECT_TRUE(scopes->Here().empty());
}

TEST(TorchCaptureTest, EachThreadHasItsOwn) {
  const auto scopes = MakeTorchCaptureScopes(TorchOptions());
  scopes->Begin();
  RECORD_FUNCTION("aten::outer", {});
  std::vector<std::string> there = {"none"};
  std::thread([&] { there = scopes->Here().ops; }).join();
  EXPECT_THAT(there, IsEmpty());
  EXPECT_THAT(scopes->Here().ops, ElementsAre("aten::outer"));
}

TEST(TorchCaptureTest, BetweenCapturesNothingIsKeptAndNothingStays) {
  const auto scopes = MakeTorchCaptureScopes(TorchOptions());
  {
    RECORD_FUNCTION("aten::before", {});
    scopes->Begin();
    scopes->Begin();
    EXPECT_TRUE(scopes->Here().empty());
  }
  {
    RECORD_FUNCTION("aten::cut", {});
    scopes->End();
    scopes->Begin();  // the next capture
    EXPECT_TRUE(scopes->Here().empty());
    {
      RECORD_FUNCTION("aten::mm", {});
      EXPECT_THAT(scopes->Here().ops, ElementsAre("aten::mm"));
    }
  }
  scopes->End();
  scopes->End();
  RECORD_FUNCTION("aten::late", {});
  EXPECT_TRUE(scopes->Here().empty());
}

const CaptureScopes* g_scopes = nullptr;
std::vector<std::string> g_in_backward;

struct Probe : torch::autograd::Function<Probe> {
  static at::Tensor forward(torch::autograd::AutogradContext*,
                            const at::Tensor& x) {
    return x * 2;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*,
      const torch::autograd::variable_list& grads) {
    g_in_backward = g_scopes->Here().ops;
    return {grads[0] * 2};
  }
};

TEST(TorchCaptureTest, TheBackwardPassHasItsNode) {
  const auto scopes = MakeTorchCaptureScopes(TorchOptions());
  g_scopes = scopes.get();
  const at::Tensor x = at::ones({2}).requires_grad_();
  const at::Tensor loss = Probe::apply(x).sum();
  scopes->Begin();
  loss.backward();
  scopes->End();
  EXPECT_THAT(g_in_backward, Contains(testing::HasSubstr("Probe")));
}

}  // namespace
}  // namespace stepscope::torch_capture_test
