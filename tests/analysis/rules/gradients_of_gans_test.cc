// Tests unread-gradients for two networks of which one is trained through the
// other.
#include "rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::gradients_of_gans_test {
namespace {

constexpr char kUnread[] = "unread-gradients";
constexpr char kFrozen[] = "float[64,32]";
constexpr char kTrained[] = "float[16,32]";
// A critic ([16,32]) that judges the output of a generator ([64,32]).
struct Adversarial {
  bool detached = false;  // the critic's loss stops before the generator
  bool frozen = false;  // the generator's pass makes no gradients of the critic
  bool zeroes = false;  // zero_grad() fills with zeros
  std::string between = "";       // an op after the critic's backward pass
  std::string updated = kFrozen;  // by the generator's optimizer
  std::string behind = "";        // an op after that
  bool adam = false;              // multiplies both of its averages
  bool hooks = false;             // of modules, in the backward pass
  int steps = 6;
};

// Steps of two backward passes. The generator's nodes take 4 ms, the critic's 2
// ms, of which 1 ms computes the weight's gradient.
Report Trained(const Adversarial& o) {
  CpuText text;
  int64_t sequence = 0;
  const auto forward = [&](const char* weight) {
    text.Op("sequence=" + std::to_string(sequence++) + " inputs=(float[8,32]," +
                weight + ") aten::linear",
            1'000);
  };
  const auto backward = [&](int64_t number, const char* weight, int64_t us,
                            bool keeps, bool adds) {
    text.Begin();
    const std::string node =
        "kind=backward sequence=" + std::to_string(number) + " AddmmBackward0";
    const std::string product = "inputs=(float[16,8],float[8,32]) aten::mm";
    if (weight == std::string(kFrozen)) {  // its input needs no gradient
      text.Nested(node, us, product, 1'000);
    } else {
      text.Nested(node, us, product, 1'000,
                  "inputs=(float[8,16],float[16,32]) aten::mm", 900);
    }
    if (!keeps) return;
    const std::string in = std::string("inputs=(") + weight;
    if (adds) {
      text.Nested("kind=backward " + in + ") torch::autograd::AccumulateGrad",
                  20, in + "," + weight + ") aten::add_", 10);
    } else {
      text.Nested(
          "kind=backward autograd::engine::evaluate_function: "
          "torch::autograd::AccumulateGrad",
          20, in + ") torch::autograd::AccumulateGrad", 15);
    }
  };
  const auto update = [&](const std::string& weight) {
    text.Begin();
    for (int average = 0; average < 2 && o.adam; ++average) {
      text.Op("inputs=(" + weight + ") aten::mul_", 10);
    }
    text.Op("inputs=(" + weight + "," + weight + ") aten::add_", 100);
    text.EndRange("kind=optimizer Optimizer.step#SGD.step");
  };
  for (int i = 0; i < o.steps; ++i) {
    forward(kFrozen);
    forward(kTrained);
    if (o.hooks) text.Op("kind=backward BackwardHookFunctionBackward", 100);
    backward(sequence - 1, kTrained, 2'000, true, o.zeroes);
    if (!o.detached) backward(sequence - 2, kFrozen, 4'000, true, o.zeroes);
    if (!o.between.empty()) text.Op(o.between, 10);
    update(kTrained);
    forward(kFrozen);
    forward(kTrained);
    backward(sequence - 1, kTrained, 2'000, !o.frozen, true);
    backward(sequence - 2, kFrozen, 4'000, true, o.zeroes);
    update(o.updated);
    if (!o.behind.empty()) text.Op(o.behind, 10);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(GradientsOfGansTest, CountGradientsThatAreClearedBeforeARead) {
  const Report report = Trained({});
  const Finding* finding = Find(report, kUnread);
  ASSERT_NE(finding, nullptr);
  // The generator's gradients in the critic's pass, and the gradients of the
  // critic's weights in the other pass.
  EXPECT_NEAR(finding->gain.expected_ms, 4.02 + 1.02, 0.001);
  EXPECT_NE(finding->evidence.find("that are cleared before any optimizer's "
                                   "step uses them"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("detach()"), std::string::npos);
  const Report of_detached = Trained({.detached = true});
  finding = Find(of_detached, kUnread);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1.02, 0.001);
  EXPECT_TRUE(IsClean(Trained({.detached = true, .frozen = true}), kUnread));
}

TEST(GradientsOfGansTest, AnOptimizerMayTakeATensorTwice) {
  const Report report = Trained({.adam = true});
  const Finding* finding = Find(report, kUnread);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4.02 + 1.02, 0.001);
}

// If backward adds to zeros, nothing shows when the zeros were written.
TEST(GradientsOfGansTest, ExcludeGradientsThatAreAddedTo) {
  EXPECT_TRUE(IsClean(Trained({.zeroes = true}), kUnread));
}

TEST(GradientsOfGansTest, AnOpBeforeTheNextForwardPassMayReadThem) {
  const Report report =
      Trained({.frozen = true, .between = "inputs=(float[64,32]) aten::clone"});
  EXPECT_TRUE(IsClean(report, kUnread));
}

TEST(GradientsOfGansTest, AMovingAverageTakesParameters) {
  const Report report = Trained(
      {.behind =
           "inputs=(TensorList(float[64,32],float[16,32]),"
           "TensorList(float[64,32],float[16,32])) aten::_foreach_lerp_"});
  const Finding* finding = Find(report, kUnread);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4.02 + 1.02, 0.001);
}

// A policy ([64,32], [8,8]) and a critic ([16,32], [8,8]) whose hidden layers
// have the same size. The policy is trained through the critic.
Report OfOneSize(const char* hidden_of_policy, bool one_step) {
  constexpr char kHidden[] = "float[8,8]";
  CpuText text;
  int64_t sequence = 0;
  const auto node = [&](const std::string& weight, bool adds) {
    text.Begin();
    const std::string in = "inputs=(" + weight;
    text.Nested("kind=backward sequence=" + std::to_string(--sequence) +
                    " AddmmBackward0",
                1'000, "inputs=(float[16,8],float[8,32]) aten::mm", 500);
    text.Nested("kind=backward " + in + ") torch::autograd::AccumulateGrad", 20,
                in + (adds ? "," + weight + ") aten::add_" : ") aten::detach"),
                10);
  };
  const auto update = [&](const std::string& first, const std::string& second) {
    text.Begin();
    for (const std::string& one : {first, second}) {
      text.Op("inputs=(" + one + "," + one + ") aten::add_", 100);
    }
    text.EndRange("kind=optimizer Optimizer.step#SGD.step");
  };
  for (int i = 0; i < 6; ++i) {
    sequence = 100 * i + 2;
    node(kTrained, false);
    node(kHidden, false);
    if (!one_step) update(kTrained, kHidden);
    sequence = 100 * i + 50;
    node(kTrained, true);
    node(kHidden, true);
    node(kFrozen, false);
    node(hidden_of_policy, false);
    if (one_step) update(kTrained, kHidden);
    update(kFrozen, hidden_of_policy);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(GradientsOfGansTest, AreToldApartByOrderInNetworksOfOneSize) {
  for (const char* hidden : {"float[8,8]", "float[4,4]"}) {
    const Report report = OfOneSize(hidden, false);
    const Finding* finding = Find(report, kUnread);
    ASSERT_NE(finding, nullptr);
    EXPECT_NE(finding->evidence.find("2 parameters that are cleared"),
              std::string::npos)
        << finding->evidence;
    // The following optimizer step reads the gradients of both passes.
    EXPECT_TRUE(IsClean(OfOneSize(hidden, true), kUnread));
  }
}

// A network of the same size may have been trained in place of this one.
TEST(GradientsOfGansTest, AreNotKnownForSeveralNetworksOfOneSize) {
  EXPECT_TRUE(
      IsClean(Trained({.frozen = true,
                       .updated = "TensorList(float[64,32],float[64,32])"}),
              kUnread));
}

constexpr char kShared[] = "float[8,8]";

// Five steps of a generator ([64,32], [8,8]) and a critic ([16,32], [8,8]). The
// critic's loss is of real images first, and then of fakes, so that backward
// goes through the generator before it stores the critic's gradients. A node
// takes 2 ms, of which 1 ms is the product for the weight. If `zeroes`,
// gradients are set to zero, else to None.
class Adversaries {
 public:
  explicit Adversaries(bool zeroes) : zeroes_(zeroes) {}

  Report Run() {
    for (int step = 0; step < 5; ++step) {
      Zero(kCritic);
      for (const char* weight :
           {kCritic, kShared, kGenerator, kShared, kCritic}) {
        Forward(weight);
      }
      Backward(1, kCritic, true);  // of the fakes
      Backward(2, kShared, true);
      Keep(kShared, true);
      Backward(3, kGenerator, false);
      Keep(kGenerator, true);
      Backward(4, kShared, true);
      Keep(kShared, false);
      Backward(5, kCritic, false);
      Keep(kCritic, false);
      Update(kCritic);
      Zero(kGenerator);
      for (const char* weight : {kGenerator, kShared, kCritic, kShared}) {
        Forward(weight);
      }
      Backward(1, kShared, true);
      Keep(kShared, true);
      Backward(2, kCritic, true);
      Keep(kCritic, true);
      Backward(3, kShared, true);
      Keep(kShared, false);
      Backward(4, kGenerator, false);
      Keep(kGenerator, false);
      Update(kGenerator);
      text_.EndStep();
    }
    return text_.Analyzed();
  }

 private:
  static constexpr const char* kGenerator = "float[64,32]";
  static constexpr const char* kCritic = "float[16,32]";

  void Forward(const std::string& weight) {
    text_.Op("sequence=" + std::to_string(sequence_++) +
                 " inputs=(float[8,32]," + weight + ") aten::linear",
             1'000);
  }
  // `back`: how many ops ago its op ran.
  void Backward(int64_t back, const std::string& weight, bool input) {
    const std::string node =
        "kind=backward sequence=" + std::to_string(sequence_ - back) +
        " AddmmBackward0";
    const std::string rows = weight.substr(6, weight.find(',') - 6);
    const std::string columns = weight.substr(weight.find(',') + 1);
    const std::string product =
        "inputs=(float[" + rows + ",8],float[8," + columns + ") aten::mm";
    if (input) {
      text_.Nested(node, 2'000, product, 1'000,
                   "inputs=(float[8," + rows + "]," + weight + ") aten::mm",
                   900);
    } else {
      text_.Nested(node, 2'000, product, 1'000);
    }
  }
  // Stores a gradient. `older`: one from an earlier pass is still there.
  void Keep(const std::string& weight, bool older) {
    const std::string in = "inputs=(" + weight;
    if (older || zeroes_) {
      text_.Nested("kind=backward " + in + ") torch::autograd::AccumulateGrad",
                   20, in + "," + weight + ") aten::add_", 10);
    } else {
      text_.Nested(
          "kind=backward autograd::engine::evaluate_function: "
          "torch::autograd::AccumulateGrad",
          20, in + ") torch::autograd::AccumulateGrad", 15);
    }
  }
  void Update(const std::string& own) {
    text_.Begin();
    for (const std::string& weight : {own, std::string(kShared)}) {
      text_.Op("inputs=(" + weight + "," + weight + ") aten::add_", 100);
    }
    text_.EndRange("kind=optimizer Optimizer.step#SGD.step");
  }
  void Zero(const std::string& own) {
    if (!zeroes_) return;
    text_.Begin();
    for (const std::string& weight : {own, std::string(kShared)}) {
      text_.Op("inputs=(" + weight + ") aten::zero_", 10);
    }
    text_.EndRange("kind=optimizer Optimizer.zero_grad#SGD.zero_grad");
  }

  bool zeroes_;
  CpuText text_;
  int64_t sequence_ = 0;
};

// The generator's two nodes in the critic's pass and what feeds them, and the
// weights of the critic in the generator's.
TEST(GradientsOfGansTest, AreDividedByPlaceWhereSizesAreShared) {
  for (const bool zeroes : {false, true}) {
    const Report report = Adversaries(zeroes).Run();
    const Finding* finding = Find(report, kUnread);
    ASSERT_NE(finding, nullptr) << zeroes;
    EXPECT_NEAR(finding->gain.expected_ms, 2 * 2.02 + 2 * 1.02, 0.05) << zeroes;
  }
}

// As Opacus makes gradients per sample, and clears the others.
TEST(GradientsOfGansTest, IsSkippedWhereHooksSeeGradients) {
  ASSERT_NE(Find(Trained({}), kUnread), nullptr);
  const Report report = Trained({.hooks = true});
  EXPECT_EQ(Find(report, kUnread), nullptr);
  EXPECT_EQ(std::ranges::count(report.skipped, kUnread, &SkippedRule::id), 1);
}

}  // namespace
}  // namespace stepscope::gradients_of_gans_test
