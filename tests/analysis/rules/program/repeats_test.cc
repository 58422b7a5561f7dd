#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"
#include "support/engine_text.h"

namespace stepscope::repeats_test {
namespace {

constexpr const char* kRule = "repeated-forward";

// Writes steps of two layers of 1024 x 64 as text.
class Network {
 public:
  void Op(const std::string& name, const std::string& inputs, double us,
          const std::string& fields = "") {
    text.Op(name, inputs, {}, us, fields);
  }
  static std::string Sequence(int number) {
    return "sequence=" + std::to_string(number);
  }
  // Writes the two layers. Their autograd nodes are `first` and `first` + 1;
  // -1: none.
  void Forward(int first, const std::string& rows = "1024") {
    Op("aten::cat", "(float[" + rows + ",64])", 20);
    for (int i = 0; i < 2; ++i) {
      Op("aten::addmm", "(float[64],float[" + rows + ",64],float[64,64])", 300,
         first < 0 ? "" : Sequence(first + i));
      Op("aten::tanh", "(float[" + rows + ",64])", 20);
    }
  }
  // Writes the node `number`, which computes `products`. The first product has
  // the autograd node `second`, unless that is negative.
  void Node(int number, int products, int second = -1) {
    text.Begin();
    text.Pass(5);
    for (int i = 0; i < products; ++i) {
      Op("aten::mm", "", 300, second < 0 || i > 0 ? "" : Sequence(second));
    }
    text.End("AddmmBackward0", "", 0, "kind=backward " + Sequence(number));
  }
  void Update() {
    text.Begin();
    Op("aten::add_", "(float[64,64],float[64,64])", 200);
    text.EndRange("Optimizer.step#SGD.step", "optimizer");
  }

  ComputeText text;
};

struct Derivatives {
  int passes = 3;
  int derived = 3;       // of the passes: those with a derivative
  int products = 1;      // per node: 2 with gradients of weights
  bool graph = true;     // the derivatives are differentiated
  bool between = false;  // each input is computed from a derivative
};

Report Of(const Derivatives& how) {
  Network network;
  int next = 1;
  for (int step = 0; step < 4; ++step) {
    const int first = next;
    for (int i = 0; i < how.passes; ++i, next += 10) {
      network.Forward(next);
      if (i >= how.passes - how.derived) {
        for (int k : {1, 0}) {
          network.Node(next + k, how.products, how.graph ? next + 5 + k : -1);
        }
      }
      if (how.between) network.Op("aten::sub", "(float[1024,64])", 20);
    }
    network.Op("aten::mean", "", 20);
    for (int i = how.passes; i-- > 0;) {
      if (how.graph && i >= how.passes - how.derived) {
        for (int k : {0, 1}) network.Node(first + 10 * i + 5 + k, 2);
      }
      for (int k : {1, 0}) network.Node(first + 10 * i + k, 2);
    }
    network.Update();
    network.text.EndStep();
  }
  return network.text.Analyzed();
}

TEST(RepeatedForwardTest, AdvisesToTakeAllDerivativesOfOnePass) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Two passes are saved: 660 us, six nodes with 10 products of 300 us, and the
  // call overhead of the 11 outermost ops.
  EXPECT_NEAR(finding->gain.expected_ms,
              2 * (0.66 + 10 * 0.3 + 6 * 0.005 + 11 * 0.02), 0.01);
  EXPECT_NE(
      finding->evidence.find("2 products of the same sizes, runs 3 times"),
      std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("torch.autograd.grad(u, (x, t)"),
            std::string::npos);
}

TEST(RepeatedForwardTest, NeedsTwoPassesWithDerivatives) {
  // A gradient penalty has one such pass.
  EXPECT_TRUE(IsClean(Of({.derived = 1}), kRule));
  EXPECT_FALSE(IsClean(Of({.derived = 2}), kRule));
}

TEST(RepeatedForwardTest, IgnoresPassesThatDependOnEachOther) {
  EXPECT_TRUE(IsClean(Of({.between = true}), kRule));
  // Gradients of weights, and derivatives that are not differentiated.
  EXPECT_TRUE(IsClean(Of({.products = 2}), kRule));
  EXPECT_TRUE(IsClean(Of({.graph = false}), kRule));
}

struct Metric {
  std::string rows = "1024";  // of the second forward pass
  bool reads = true;
  std::string compares = {};   // type of the compared tensors, if not read
  bool trains_behind = false;  // the loss needs the pass's result
  bool loads = false;          // loads another batch before it
  bool before_update = false;
  bool again = true;
  int metrics = 1;  // each from a pass of its own
};

Report Of(const Metric& how) {
  Network network;
  int next = 1;
  for (int step = 0; step < 4; ++step, next += 10) {
    const auto evaluate = [&] {
      if (how.loads) {
        network.text.Begin();
        network.Op("aten::stack", "", 100);
        network.text.EndRange("enumerate(DataLoader)#x.__next__", "loader");
      }
      if (how.again) network.Forward(-1, how.rows);
      network.Op("aten::argmax", "", 20);
      if (!how.compares.empty()) {
        const std::string classes = how.compares + "[1024]";
        network.Op("aten::eq", "(" + classes + "," + classes + ")", 10);
      }
      if (how.trains_behind) {
        network.Op("aten::sub", "", 20, Network::Sequence(next + 3));
      }
      network.Op(how.reads ? "aten::_local_scalar_dense" : "aten::sum", "", 10);
    };
    network.Forward(next);
    if (how.before_update) evaluate();
    network.Op("aten::mean", "", 20, Network::Sequence(next + 2));
    if (how.trains_behind) network.Node(next + 3, 0);
    network.Node(next + 2, 0);
    for (int k : {1, 0}) network.Node(next + k, 2);
    network.Update();
    for (int i = 0; i < how.metrics && !how.before_update; ++i) evaluate();
    network.text.EndStep();
  }
  return network.text.Analyzed();
}

TEST(RepeatedForwardTest, AdvisesToReuseTheOutputForMetrics) {
  for (bool before : {false, true}) {
    const Report report = Of(Metric{.before_update = before});
    const Finding* finding = Find(report, kRule);
    ASSERT_NE(finding, nullptr) << before;
    EXPECT_EQ(finding->gain_kind, GainKind::kBound);
    EXPECT_NEAR(finding->gain.expected_ms, 0.66 + 0.03, 0.02);
    EXPECT_EQ(finding->confidence,
              before ? Confidence::kStrong : Confidence::kHint);
    EXPECT_NE(finding->fix_python.find("output.detach()"), std::string::npos);
  }
}

TEST(RepeatedForwardTest, SeesAPassForEachOfSeveralMetrics) {
  const Report report = Of(Metric{.metrics = 3});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 3 * (0.66 + 0.03), 0.02);
  EXPECT_NE(finding->evidence.find("2 products of the same sizes runs 3 times, "
                                   "for a metric each time"),
            std::string::npos)
      << finding->evidence;
  // Nobody reads what the passes in front of the last one compute.
  EXPECT_TRUE(IsClean(
      Of(Metric{.reads = false, .compares = "float", .metrics = 3}), kRule));
}

TEST(RepeatedForwardTest, SeesAMetricThatStaysATensor) {
  EXPECT_FALSE(
      IsClean(Of(Metric{.reads = false, .compares = "long int"}), kRule));
  // A target network looks like this: it computes a mask, or compares nothing.
  EXPECT_TRUE(IsClean(Of(Metric{.reads = false, .compares = "float"}), kRule));
  EXPECT_TRUE(IsClean(Of(Metric{.reads = false}), kRule));
}

TEST(RepeatedForwardTest, IgnoresOtherPasses) {
  EXPECT_TRUE(IsClean(Of(Metric{.again = false}), kRule));
  EXPECT_TRUE(IsClean(Of(Metric{.rows = "512"}), kRule));
  EXPECT_TRUE(IsClean(Of(Metric{.loads = true}), kRule));
  EXPECT_TRUE(
      IsClean(Of(Metric{.trains_behind = true, .before_update = true}), kRule));
}

// An encoder of two layers runs twice, each time with a head of one layer.
// Layers take 1 ms, their nodes 2 ms.
struct Twins {
  std::string between = "(float[16,4]) aten::tanh";  // op after the first head
  std::string behind = "(float[16,2]) aten::tanh";   // op after the second head
  std::string before = "(float[16,9]) aten::tanh";
  bool own_weights = false;
};

Report Of(const Twins& how) {
  EngineText text;
  const std::string image = "float[16,3,32,32]";
  const std::string weights[] = {"float[8,3,3,3]", "float[64,7200]"};
  const auto op = [&](const std::string& line, double us) {
    const size_t space = line.find(' ');
    text.Op(line.substr(space + 1), line.substr(0, space), us);
  };
  int sequence = 0;
  for (int step = 0; step < 4; ++step) {
    op(how.before, 10);
    for (int pass = 0; pass < 2; ++pass) {
      const int first = sequence + 3 * pass;
      text.Op("aten::conv2d", "(" + image + "," + weights[0] + ")", 1000,
              first);
      text.Op("aten::linear", "(float[16,7200]," + weights[1] + ")", 1000,
              first + 1);
      // The heads have the same size but different weights.
      text.Op("aten::linear", "(float[16,64],float[4,64])", 1000, first + 2);
      op(pass == 0 ? how.between : how.behind, 10);
    }
    for (int pass = 2; pass-- > 0;) {
      const int first = sequence + 3 * pass;
      const bool adds = pass == 0 && !how.own_weights;
      text.Node(first + 2, 2000);
      text.Keep("float[4,64]");
      for (int layer = 1; layer >= 0; --layer) {
        text.Node(first + layer, 2000, adds ? weights[layer] : "");
        if (how.own_weights || pass == 0) text.Keep(weights[layer]);
      }
    }
    text.Update();
    sequence += 6;
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(RepeatedForwardTest, FindsTwoHeadsThatEncodeTheSameInput) {
  const Report report = Of(Twins{});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  // A loader may have delivered two different images.
  EXPECT_EQ(finding->severity, FindingSeverity::kLow);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // The heads do not count, because they share no weights.
  EXPECT_NEAR(finding->gain.expected_ms, 2 * (1 + 2) + 0.04, 0.1);
  EXPECT_NE(finding->evidence.find(
                "The same 2 layers run 2 times per step, each time on an input "
                "of [16, 3, 32, 32]"),
            std::string::npos)
      << finding->evidence;
}

TEST(RepeatedForwardTest, IgnoresTwinsWithDifferentInputs) {
  // The second input is made between the passes, or one op makes two inputs
  // before both.
  EXPECT_TRUE(IsClean(
      Of(Twins{.between = "(float[16,3,32,32],float[16,3,32,32]) aten::add"}),
      kRule));
  EXPECT_TRUE(IsClean(
      Of(Twins{.before = "(float[32,3,32,32],Scalar=\"2\") aten::chunk"}),
      kRule));
  // A single op makes one input for both.
  const Report one =
      Of(Twins{.before = "(float[16,3,32,32],Scalar=\"2\") aten::div"});
  ASSERT_NE(Find(one, kRule), nullptr);
  EXPECT_EQ(Find(one, kRule)->severity, FindingSeverity::kMedium);
}

TEST(RepeatedForwardTest, IgnoresTwoViewsThatMeetInTheLoss) {
  EXPECT_TRUE(IsClean(
      Of(Twins{.behind = "(float[16,64],float[16,64]) aten::mul"}), kRule));
}

TEST(RepeatedForwardTest, IgnoresTwinsWithDifferentWeights) {
  EXPECT_TRUE(IsClean(Of(Twins{.own_weights = true}), kRule));
}

}  // namespace
}  // namespace stepscope::repeats_test
