#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::autograd_test {
namespace {

constexpr const char* kRepeated = "repeated-backward";

struct Losses {
  int passes = 2;
  bool retained = true;  // all passes walk the trunk's nodes; else its own each
  bool adds = true;      // the later ones to the gradients of the first
  bool keeps = true;     // a pass accumulates gradients
  bool records = false;  // create_graph=True
  bool one_output = false;   // of which all passes take derivatives
  std::string part_of = {};  // the dimension of which each pass takes a part
  std::string between = {};  // an op between the passes
  std::string inputs = "(float[64,64])";
  bool updates = false;                // the optimizer steps between the passes
  std::string updated = "float[9,9]";  // by the optimizer between the passes
  double node_us = 300;
};

// Steps with a trunk of two layers of 64 x 64, and a head for each loss.
class Program {
 public:
  explicit Program(const Losses& how) : how_(how) {}

  Report Analyzed() {
    for (int step = 0; step < 4; ++step) {
      next_ += 100;
      trunk_ = next_;
      Trunk();
      int head = 0;
      for (int pass = 0; pass < how_.passes; ++pass) {
        if (!how_.retained && pass > 0) {
          trunk_ = next_;
          Trunk();
        }
        if (pass == 0 || !how_.one_output) {
          head = next_++;
          Op("aten::linear", "(float[32,64],float[8,64],float[8])", 50,
             Sequence(head));
        }
        if (!how_.part_of.empty()) {
          part_ = next_++;
          Op("aten::select",
             "(float[32,8],=\"" + how_.part_of + "\",=\"" +
                 std::to_string(pass) + "\")",
             5, Sequence(part_));
        }
        if (pass > 0 && !how_.between.empty()) {
          Op(how_.between, how_.inputs, 10, "");
        }
        if (pass > 0 && how_.updates) Update(how_.updated);
        Backward(head, pass > 0 && how_.adds);
      }
      Update("float[64,64]");
      text_.EndStep();
    }
    return text_.Analyzed();
  }

 private:
  static std::string Sequence(int number) {
    return "sequence=" + std::to_string(number);
  }
  void Op(const std::string& name, const std::string& inputs, double us,
          const std::string& fields) {
    text_.Op(name, inputs, {}, us, fields);
  }
  void Trunk() {
    for (int i = 0; i < 2; ++i) {
      Op("aten::linear", "(float[32,64],float[64,64],float[64])", 100,
         Sequence(next_++));
    }
  }
  void Node(int number, const std::string& gradient, double us, bool adds) {
    text_.Begin();
    text_.Pass(1);
    text_.Begin();
    text_.Pass(1);
    Op("aten::mm", "", us, how_.records ? Sequence(next_++) : "");
    const std::string name =
        number == part_ ? "SelectBackward0" : "AddmmBackward0";
    text_.End(name, "", 0, "kind=backward " + Sequence(number));
    text_.End("autograd::engine::evaluate_function: " + name, "", 0,
              "kind=backward " + Sequence(number));
    if (!how_.keeps) return;
    text_.Begin();
    text_.Pass(1);
    text_.Begin();
    text_.Pass(1);
    if (adds) Op("aten::add_", "(" + gradient + "," + gradient + ",1)", 40, "");
    text_.End("torch::autograd::AccumulateGrad", "(" + gradient + ")");
    text_.End(
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
        "", 0, "kind=backward");
  }
  void Backward(int head, bool adds) {
    Op("aten::ones_like", "(float[])", 5, "");
    if (part_ >= 0) Node(part_, "", 5, false);
    Node(head, "float[8,64]", 50, false);
    for (int i : {1, 0}) Node(trunk_ + i, "float[64,64]", how_.node_us, adds);
  }
  void Update(const std::string& parameter) {
    text_.Begin();
    Op("aten::_foreach_add_", "((" + parameter + "," + parameter + "))", 50,
       "");
    text_.EndRange("Optimizer.step#SGD.step", "optimizer");
  }

  Losses how_;
  ComputeText text_;
  int next_ = 0, trunk_ = 0;
  int part_ = -1;  // the number of the part that is differentiated
};

Report Of(const Losses& how) { return Program(how).Analyzed(); }

TEST(RepeatedBackwardTest, AddsUpTheLosses) {
  const Report report = Of({.passes = 3});
  const Finding* finding = Find(report, kRepeated);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  // Two of three runs of two nodes, each with a sum of 40 us.
  EXPECT_NEAR(finding->gain.expected_ms, 4 * (0.302 + 0.042), 0.05);
  EXPECT_NE(finding->evidence.find("run up to 3 times"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("4 runs"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("(loss_a + loss_b).backward()"),
            std::string::npos);
}

TEST(RepeatedBackwardTest, ForwardOpsMayLieBetween) {
  EXPECT_FALSE(IsClean(
      Of({.between = "aten::argmax", .inputs = "(float[32,8])"}), kRepeated));
}

TEST(RepeatedBackwardTest, GraphsOfTheirOwnAreNoRepetition) {
  // As of gradients that are accumulated over micro-batches.
  EXPECT_TRUE(IsClean(Of({.retained = false}), kRepeated));
  EXPECT_TRUE(IsClean(Of({.passes = 1}), kRepeated));
}

TEST(RepeatedBackwardTest, GradientsOfSingleLossesMayBeWanted) {
  // They are read, zeroed or used in between, or go to the caller of
  // autograd.grad().
  EXPECT_TRUE(IsClean(Of({.between = "aten::clone"}), kRepeated));
  EXPECT_TRUE(IsClean(Of({.between = "aten::cat",
                          .inputs = "((float[8,64],float[64,64]),int)"}),
                      kRepeated));
  EXPECT_TRUE(IsClean(Of({.between = "aten::zero_"}), kRepeated));
  EXPECT_TRUE(IsClean(Of({.updates = true}), kRepeated));
  EXPECT_TRUE(IsClean(Of({.keeps = false}), kRepeated));
}

TEST(RepeatedBackwardTest, CutsOffWhatALossDoesNotTrain) {
  // As in a GAN whose discriminator's loss goes through the generator.
  const Report report = Of({.adds = false, .updates = true});
  const Finding* finding = Find(report, kRepeated);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2 * (0.302 + 0.002), 0.05);
  EXPECT_NE(finding->fix_python.find("fake.detach()"), std::string::npos);
  // The optimizer, or the program, reads them before they are set to None.
  EXPECT_TRUE(
      IsClean(Of({.adds = false, .updates = true, .updated = "float[64,64]"}),
              kRepeated));
  EXPECT_TRUE(
      IsClean(Of({.adds = false, .between = "aten::clone"}), kRepeated));
}

// As for the derivatives of a network's output by each of its inputs.
TEST(RepeatedBackwardTest, OneCallTakesDerivativesByAllInputs) {
  Losses how{.passes = 3, .keeps = false, .records = true, .one_output = true};
  const Report report = Of(how);
  const Finding* finding = Find(report, kRepeated);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("autograd.grad(u, (x, y, t)"),
            std::string::npos)
      << finding->fix_python;
  // Two of three runs of three nodes.
  EXPECT_NEAR(finding->gain.expected_ms, 2 * (0.052 + 2 * 0.302), 0.05);
  // Products with random vectors, as for the trace of a Hessian.
  how.between = "aten::randn_like";
  EXPECT_TRUE(IsClean(Of(how), kRepeated));
  // Gradients that nobody can differentiate, as of single losses.
  how.between = "";
  how.records = false;
  EXPECT_TRUE(IsClean(Of(how), kRepeated));
}

// As the energy of each molecule of a batch, by the positions of all.
TEST(RepeatedBackwardTest, OneCallTakesDerivativesOfAllSamples) {
  Losses how{.passes = 3,
             .keeps = false,
             .records = true,
             .one_output = true,
             .part_of = "0"};
  const Report report = Of(how);
  const Finding* finding = Find(report, kRepeated);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("torch.autograd.grad(u.sum(), x"),
            std::string::npos)
      << finding->fix_python;
  EXPECT_NEAR(finding->gain.expected_ms, 2 * (0.052 + 2 * 0.302), 0.05);
  // Columns are different quantities, each of all samples.
  how.part_of = "1";
  EXPECT_TRUE(IsClean(Of(how), kRepeated));
}

TEST(RepeatedBackwardTest, GradientsOfGradientsWalkAGraphAgain) {
  EXPECT_TRUE(IsClean(Of({.records = true}), kRepeated));
}

TEST(RepeatedBackwardTest, ASharedPartMustTakeTime) {
  // With the sums, 0.1 ms is the smallest gain that is worth reporting.
  EXPECT_TRUE(IsClean(Of({.node_us = 5}), kRepeated));
  EXPECT_FALSE(IsClean(Of({.node_us = 15}), kRepeated));
}

}  // namespace
}  // namespace stepscope::autograd_test
