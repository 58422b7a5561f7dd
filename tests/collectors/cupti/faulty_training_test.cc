// Runs a small training under a Session while each CUPTI call fails in turn.
// The training must compute bit-identical numbers and be told what failed, and
// LibTorch's own profiler must work afterwards.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/session.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "collectors/cupti/collector_fixture.h"

namespace stepscope::faulty_training_test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr int kSteps = 8;  // two cycles, then two steps

// A convolution, a product, a backward pass and an update with fixed numbers.
class Training {
 public:
  Training()
      : filter_(Numbers({2, 1, 3, 3}).requires_grad_(true)),
        weight_(Numbers({2 * 6 * 6, 4}).requires_grad_(true)),
        input_(Numbers({3, 1, 8, 8})) {}

  // Returns the loss as bits.
  uint32_t Step() {
    at::Tensor out = at::relu(at::conv2d(input_, filter_)).flatten(1);
    at::Tensor loss = at::log_softmax(at::mm(out, weight_), 1).square().mean();
    torch::autograd::backward({loss}, {});
    {
      const c10::NoGradGuard no_grad;
      for (at::Tensor* parameter : {&filter_, &weight_}) {
        parameter->sub_(parameter->grad(), 0.05);
        parameter->mutable_grad().reset();
      }
    }
    return std::bit_cast<uint32_t>(loss.item<float>());
  }

 private:
  static at::Tensor Numbers(at::IntArrayRef sizes) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    return at::sin(at::arange(count, at::kFloat)).mul(0.3).view(sizes);
  }
  at::Tensor filter_;
  at::Tensor weight_;
  at::Tensor input_;
};

std::vector<uint32_t> TrainAlone() {
  Training training;
  std::vector<uint32_t> losses;
  for (int i = 0; i < kSteps; ++i) losses.push_back(training.Step());
  return losses;
}

class FaultyTrainingTest : public CuptiCollectorFixture {
 protected:
  struct Outcome {
    std::vector<uint32_t> losses;
    std::vector<std::string> errors;
    std::vector<Trace> traces;
  };

  Outcome Train() {
    Outcome outcome;
    Session::Options options;
    options.name = "training";
    options.schedule = {.wait = 1, .warmup = 1, .active = 1, .repeat = 2};
    options.collectors.push_back(Make());
    options.collectors.push_back(MakeTorchCollector({}));
    options.on_error = [&](const absl::Status& error) {
      outcome.errors.push_back(Message(error));
    };
    auto session = Session::Make(std::move(options));
    EXPECT_TRUE(session.ok());
    Training training;
    for (int i = 0; i < kSteps; ++i) {
      outcome.losses.push_back(training.Step());
      QueueKernel();
      if (auto window = (*session)->Step()) {
        outcome.traces.push_back(window->Build({}));
      }
    }
    return outcome;
  }

  // Records the next training step with LibTorch's profiler.
  static size_t EventsOfTorchProfiler() {
    using namespace torch::autograd::profiler;
    const ProfilerConfig config(ProfilerState::KINETO);
    prepareProfiler(config, {ActivityType::CPU});
    enableProfiler(config, {ActivityType::CPU});
    Training().Step();
    return disableProfiler()->events().size();
  }
};

TEST_F(FaultyTrainingTest, WithoutAFaultBothCyclesHaveDeviceWork) {
  const Outcome outcome = Train();
  EXPECT_EQ(outcome.losses, TrainAlone());
  EXPECT_THAT(outcome.errors, IsEmpty());
  ASSERT_EQ(outcome.traces.size(), 2u);
  for (const Trace& trace : outcome.traces) {
    EXPECT_TRUE(trace.watched(Kind::kKernel));
    EXPECT_FALSE(trace.ops().empty());
    EXPECT_THAT(trace.losses(), IsEmpty());
  }
}

TEST_F(FaultyTrainingTest, WhicheverCallFailsTheResultIsTheSameBits) {
  const std::vector<uint32_t> expected = TrainAlone();
  const size_t torch_events = EventsOfTorchProfiler();
  ASSERT_GT(torch_events, 10u);
  const int before = fake_.call_count();
  (void)Train();
  const int calls = fake_.call_count() - before;
  ASSERT_GT(calls, 80);
  int told = 0;
  for (int n = 1; n <= calls; ++n) {
    SCOPED_TRACE("call " + std::to_string(n));
    const size_t first = fake_.calls().size();
    fake_.FailCall(n, CUPTI_ERROR_UNKNOWN);
    const Outcome outcome = Train();
    const std::string failed = fake_.calls()[first + n - 1];
    EXPECT_EQ(outcome.losses, expected) << failed;
    ASSERT_EQ(outcome.traces.size(), 2u);
    // Operators are recorded, whatever happens to the device.
    for (const Trace& trace : outcome.traces) EXPECT_FALSE(trace.ops().empty());
    for (const std::string& error : outcome.errors) {
      EXPECT_THAT(error, StartsWith("CUPTI: cannot "));
      EXPECT_THAT(error, HasSubstr("(code 999): "));
      EXPECT_THAT(error, HasSubstr("tried again in the next"));
    }
    // One call fails, so at most one cycle lacks its device work. That cycle's
    // Trace says why.
    int without = 0;
    int with_loss = 0;
    for (const Trace& trace : outcome.traces) {
      without += !trace.watched(Kind::kKernel);
      with_loss += !trace.losses().empty();
    }
    EXPECT_LE(without, 1) << failed;
    EXPECT_EQ(without, static_cast<int>(outcome.errors.size())) << failed;
    EXPECT_GE(with_loss, without) << failed;
    told += with_loss > 0;
    fake_.FailNothing();
    fake_.ProgramCalls();  // completes pending detachments
    EXPECT_TRUE(fake_.enabled().empty() || failed == "Disable") << failed;
    if (n % 32 == 0) {
      EXPECT_EQ(EventsOfTorchProfiler(), torch_events);
    }
  }
  EXPECT_GT(told, calls / 8);
  EXPECT_EQ(EventsOfTorchProfiler(), torch_events);
}

TEST_F(FaultyTrainingTest, WithEveryCallFailingTheProgramIsToldOnce) {
  const std::vector<uint32_t> expected = TrainAlone();
  for (const char* call :
       {"Subscribe", "SetThreadIdType", "RegisterCallbacks", "Enable"}) {
    fake_.FailAll(call, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    const Outcome outcome = Train();
    EXPECT_EQ(outcome.losses, expected) << call;
    ASSERT_EQ(outcome.errors.size(), 1u) << call;
    EXPECT_THAT(outcome.errors[0], HasSubstr("NVreg_RestrictProfiling"));
    EXPECT_EQ(outcome.traces.size(), 2u);
    fake_.FailNothing();
    fake_.ProgramCalls();  // completes pending detachments
    ExpectNothingLeftBehind();
  }
  EXPECT_GT(EventsOfTorchProfiler(), 10u);
}

}  // namespace
}  // namespace stepscope::faulty_training_test
