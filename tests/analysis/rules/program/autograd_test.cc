#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::autograd_test {
namespace {

constexpr const char* kRepeated = "repeated-backward";

struct Losses {
  int passes = 2;
  bool retained = true;     // all passes share one trunk; else each has its own
  bool adds = true;         // later passes add to the first one's gradients
  bool first_adds = false;  // and the first to those already there
  bool keeps = true;        // passes accumulate gradients
  bool records = false;     // create_graph=True
  bool one_output = false;  // all passes differentiate the same output
  std::string part_of = {};  // each pass selects a part along this dimension
  std::string between = {};  // an op between the passes
  std::string inputs = "(float[64,64])";
  bool updates = false;                // the optimizer steps between the passes
  std::string updated = "float[9,9]";  // the parameter that this step changes
  double node_us = 300;
  bool sized = true;     // sizes of tensors were recorded
  bool renamed = false;  // later passes run other nodes with the same numbers
  // Where the stacks are: at the ops inside nodes, or only at the gradient that
  // backward() makes before them.
  enum { kNoStack, kInNodes, kBefore } stacks = kNoStack;
};

// Steps with a trunk of two 64 x 64 layers and a head for each loss.
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
        pass_ = pass;
        Backward(head, pass > 0 ? how_.adds : how_.first_adds);
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
  std::string Stack() const {
    return "stack=(\"torch/_tensor.py(1): backward\",\"a.py(" +
           std::to_string(10 + pass_) + "): train\")";
  }
  void Op(const std::string& name, const std::string& inputs, double us,
          const std::string& fields) {
    text_.Op(name, how_.sized ? inputs : "", {}, us, fields);
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
    Op("aten::mm", "", us,
       how_.stacks == Losses::kInNodes ? Stack()
       : how_.records                  ? Sequence(next_++)
                                       : "");
    const std::string name = number == part_        ? "SelectBackward0"
                             : adds && how_.renamed ? "MulBackward0"
                                                    : "AddmmBackward0";
    text_.End(name, "", 0, "kind=backward " + Sequence(number));
    text_.End("autograd::engine::evaluate_function: " + name, "", 0,
              "kind=backward " + Sequence(number));
    if (!how_.keeps) return;
    text_.Begin();
    text_.Pass(1);
    text_.Begin();
    text_.Pass(1);
    if (adds) Op("aten::add_", "(" + gradient + "," + gradient + ",1)", 40, "");
    text_.End("torch::autograd::AccumulateGrad",
              how_.sized ? "(" + gradient + ")" : "");
    text_.End(
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
        "", 0, "kind=backward");
  }
  void Backward(int head, bool adds) {
    if (how_.stacks != Losses::kInNodes) {
      Op("aten::ones_like", "(float[])", 5,
         how_.stacks == Losses::kBefore ? Stack() : "");
    }
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
  int pass_ = 0;
  int part_ = -1;  // sequence number of the selected part
};

Report Of(const Losses& how) { return Program(how).Analyzed(); }

TEST(RepeatedBackwardTest, AddsUpTheLosses) {
  const Report report = Of({.passes = 3});
  const Finding* finding = Find(report, kRepeated);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  // Saves two of three runs of two nodes, each with a 40 us sum.
  EXPECT_NEAR(finding->gain.expected_ms, 4 * (0.302 + 0.042), 0.05);
  EXPECT_NE(finding->evidence.find("run up to 3 times"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("4 runs"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("(loss_a + loss_b).backward()"),
            std::string::npos);
}

TEST(RepeatedBackwardTest, AllowsForwardOpsBetweenThePasses) {
  EXPECT_FALSE(IsClean(
      Of({.between = "aten::argmax", .inputs = "(float[32,8])"}), kRepeated));
}

TEST(RepeatedBackwardTest, IgnoresPassesWithTheirOwnGraph) {
  // Gradient accumulation over micro-batches looks like this.
  EXPECT_TRUE(IsClean(Of({.retained = false}), kRepeated));
  EXPECT_TRUE(IsClean(Of({.passes = 1}), kRepeated));
}

TEST(RepeatedBackwardTest, KeepsPassesWhoseGradientsAreUsed) {
  // The gradients are read, zeroed or used between the passes, or returned to
  // the caller of autograd.grad().
  EXPECT_TRUE(IsClean(Of({.between = "aten::clone"}), kRepeated));
  EXPECT_TRUE(IsClean(Of({.between = "aten::cat",
                          .inputs = "((float[8,64],float[64,64]),int)"}),
                      kRepeated));
  EXPECT_TRUE(IsClean(Of({.between = "aten::zero_"}), kRepeated));
  EXPECT_TRUE(IsClean(Of({.updates = true}), kRepeated));
  EXPECT_TRUE(IsClean(Of({.keeps = false}), kRepeated));
}

TEST(RepeatedBackwardTest, SaysToDetachWhatALossDoesNotTrain) {
  // In a GAN, the discriminator's loss also goes through the generator.
  const Report report = Of({.adds = false, .updates = true});
  const Finding* finding = Find(report, kRepeated);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2 * (0.302 + 0.002), 0.05);
  EXPECT_NE(finding->fix_python.find("fake.detach()"), std::string::npos);
  // The optimizer or the program reads the gradients before they are set to
  // None.
  EXPECT_TRUE(
      IsClean(Of({.adds = false, .updates = true, .updated = "float[64,64]"}),
              kRepeated));
  EXPECT_TRUE(
      IsClean(Of({.adds = false, .between = "aten::clone"}), kRepeated));
}

TEST(RepeatedBackwardTest, NamesTheLineOfTheNeedlessPassAndBothLines) {
  for (auto stacks : {Losses::kBefore, Losses::kInNodes}) {
    const Report report = Of({.stacks = stacks});
    const Finding* finding = Find(report, kRepeated);
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->where, "a.py:11 in train");
    EXPECT_NE(finding->evidence.find("start at a.py:10 in train and a.py:11 in "
                                     "train."),
              std::string::npos)
        << finding->evidence;
  }
  // Of a pass whose gradients are dropped, the first one is needless.
  const Report report =
      Of({.adds = false, .updates = true, .stacks = Losses::kBefore});
  ASSERT_NE(Find(report, kRepeated), nullptr);
  EXPECT_EQ(Find(report, kRepeated)->where, "a.py:10 in train");
}

// Derivatives of a network's output with respect to each input need one call.
TEST(RepeatedBackwardTest, AdvisesOneCallForAllInputs) {
  Losses how{.passes = 3, .keeps = false, .records = true, .one_output = true};
  const Report report = Of(how);
  const Finding* finding = Find(report, kRepeated);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("autograd.grad(u, (x, y, t)"),
            std::string::npos)
      << finding->fix_python;
  // Saves two of three runs of three nodes.
  EXPECT_NEAR(finding->gain.expected_ms, 2 * (0.052 + 2 * 0.302), 0.05);
  // Products with random vectors, for example to estimate the trace of a
  // Hessian.
  how.between = "aten::randn_like";
  EXPECT_TRUE(IsClean(Of(how), kRepeated));
  // Gradients of several losses without create_graph=True.
  how.between = "";
  how.records = false;
  EXPECT_TRUE(IsClean(Of(how), kRepeated));
}

// Example: the energies of a batch of molecules, differentiated one by one with
// respect to all positions.
TEST(RepeatedBackwardTest, AdvisesOneCallForAllSamples) {
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
  // Columns are different quantities, so that their sum is meaningless.
  how.part_of = "1";
  EXPECT_TRUE(IsClean(Of(how), kRepeated));
}

TEST(RepeatedBackwardTest, IgnoresGradientsOfGradients) {
  EXPECT_TRUE(IsClean(Of({.records = true}), kRepeated));
}

TEST(RepeatedBackwardTest, NeedsTimeInTheSharedPart) {
  // With the sums, this crosses 0.1 ms, the smallest gain worth reporting.
  EXPECT_TRUE(IsClean(Of({.node_us = 5}), kRepeated));
  EXPECT_FALSE(IsClean(Of({.node_us = 15}), kRepeated));
}

// torch.profiler records no sizes by default.
TEST(RepeatedBackwardTest, AddsUpTheLossesWithoutSizes) {
  const Report report = Of({.passes = 3, .sized = false});
  const Finding* finding = Find(report, kRepeated);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_NEAR(finding->gain.expected_ms, 4 * (0.302 + 0.042), 0.05);
  EXPECT_NE(finding->evidence.find("run up to 3 times"), std::string::npos)
      << finding->evidence;
}

// Without sizes, an op that reads scores looks like one that reads gradients.
TEST(RepeatedBackwardTest, GivesAHintIfAnOpBetweenMayReadGradients) {
  const Report report = Of({.between = "aten::argmax", .sized = false});
  const Finding* finding = Find(report, kRepeated);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
}

// A hook that updates a parameter adds to it, in each pass.
TEST(RepeatedBackwardTest, GivesAHintIfTheFirstPassAddsToo) {
  const Report report = Of({.first_adds = true, .sized = false});
  const Finding* finding = Find(report, kRepeated);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(Find(Of({.first_adds = true}), kRepeated)->confidence,
            Confidence::kStrong);
}

TEST(RepeatedBackwardTest, NeedsSizesIfGradientsMayBeUsed) {
  for (const char* reads :
       {"aten::clone", "aten::cat", "aten::linalg_vector_norm",
        "aten::_foreach_norm", "aten::zero_"}) {
    EXPECT_NE(WhySkipped(Of({.between = reads, .sized = false}), kRepeated), "")
        << reads;
  }
  EXPECT_NE(WhySkipped(Of({.updates = true, .sized = false}), kRepeated), "");
  // In a GAN, the sizes tell whose gradients the optimizer takes.
  EXPECT_NE(WhySkipped(Of({.adds = false, .updates = true, .sized = false}),
                       kRepeated),
            "");
  // Gradients per task, which are set to None after they were read.
  EXPECT_NE(WhySkipped(Of({.adds = false, .sized = false}), kRepeated), "");
}

TEST(RepeatedBackwardTest, NeedsTheSameNodesWithoutSizes) {
  EXPECT_TRUE(IsClean(Of({.retained = false, .sized = false}), kRepeated));
  EXPECT_TRUE(IsClean(Of({.keeps = false, .sized = false}), kRepeated));
  EXPECT_TRUE(IsClean(Of({.records = true, .sized = false}), kRepeated));
  // Another thread's graph has the same numbers.
  EXPECT_TRUE(IsClean(Of({.sized = false, .renamed = true}), kRepeated));
}

}  // namespace
}  // namespace stepscope::autograd_test
