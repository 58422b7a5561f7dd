#include <algorithm>
#include <string>
#include <vector>

#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::recurrence_test {
namespace {

// A loop over a sequence, with a batch of 4 and a state of 16.
struct How {
  int positions = 12;
  std::string cell = "aten::lstm_cell";  // "": separate ops
  bool on_gpu = false;
  bool sizes = true;
  std::string whole = {};    // an op around the whole loop
  bool own_weights = false;  // each pass accumulates its gradients: a layer
  std::string product = "aten::addmm";
  bool adds = true;  // adds the input to the product
  std::string bounded_by = "aten::tanh";
  std::vector<std::string> more = {};  // ops after that
  bool backward = true;
  bool attends = false;       // a product between the cells
  bool joins = false;         // joins tensors for the next cell after that
  std::string layer = {};     // input and weight of a layer before each cell
  bool noise = false;         // picks noise as large as that layer's result
  bool scales = false;        // multiplies the noise by that result
  double gap_us = 20;         // of host code before each cell
  int other_ops = 0;          // ops with gaps after the loop
  double large_us = 0;        // of a product with the rows of all positions
  double kernels_take = 0.1;  // share of the op's time
};

class Loop {
 public:
  explicit Loop(How how) : how_(std::move(how)) {}

  Report Analyzed() {
    for (int step = 0; step < 4; ++step) {
      if (!how_.whole.empty()) text_.Begin();
      for (int i = 0; i < how_.positions; ++i) Cell(i);
      if (!how_.whole.empty()) text_.End(how_.whole);
      if (how_.large_us > 0) {
        Op("aten::addmm", "(float[16],float[48,16],float[16,16])",
           how_.large_us);
      }
      for (int i = 0; i < how_.other_ops; ++i) {
        text_.Pass(20);
        Op("aten::nonzero", "", 5);
      }
      Op("aten::mm", "", 2000);
      for (int i = how_.positions; how_.backward && i-- > 0;) BackwardOf(i);
      if (how_.backward && !how_.own_weights) Accumulate();
      Op("aten::mm", "", 2000);
      sequence_ += how_.positions;
      text_.EndStep();
    }
    return text_.Analyzed();
  }

 private:
  void Op(const std::string& name, const std::string& inputs, double us,
          const std::string& fields = "") {
    const std::string known = how_.sizes ? inputs : "";
    if (how_.on_gpu) {
      text_.Op(name, known, {{"a kernel of " + name, us * how_.kernels_take}},
               us, fields);
    } else {
      text_.Op(name, known, {}, us, fields);
    }
  }
  void Cell(int i) {
    const std::string number = "sequence=" + std::to_string(sequence_ + i);
    text_.Pass(how_.gap_us);
    if (how_.attends) Op("aten::bmm", "(float[4,1,16],float[4,16,9])", 40);
    if (!how_.layer.empty()) Op("aten::linear", how_.layer, 40);
    if (how_.noise) {
      Op("aten::select", "(float[12,4,8],=\"0\",=\"1\")", 5);
    }
    if (how_.scales) Op("aten::mul", "(float[4,8],float[4,8])", 10);
    if (how_.joins) {
      Op("aten::cat", "((float[4,8],float[4,8]),=\"1\")", 10);
    }
    if (!how_.cell.empty()) text_.Begin();
    Op(how_.product, "(float[16],float[4,16],float[16,16])", 30, number);
    if (how_.adds) Op("aten::add", "(float[4,16],float[4,16])", 20);
    Op(how_.bounded_by, "(float[4,16])", 20);
    for (const std::string& op : how_.more) Op(op, "(float[4,16])", 20);
    if (!how_.cell.empty()) {
      text_.End(how_.cell, how_.sizes ? "(float[4,16],float[4,16])" : "", 0,
                number);
    }
  }
  void BackwardOf(int i) {
    text_.Begin();
    Op("aten::mm", "", 40);
    Op("aten::tanh_backward", "", 30);
    text_.End("autograd::engine::evaluate_function: AddmmBackward0", "", 0,
              "kind=backward sequence=" + std::to_string(sequence_ + i));
    if (how_.own_weights) Accumulate();
  }
  void Accumulate() {
    Op("torch::autograd::AccumulateGrad", "", 5, "kind=backward");
  }

  How how_;
  ComputeText text_;
  int sequence_ = 0;
};

Report Of(How how) { return Loop(std::move(how)).Analyzed(); }
How Written() { return {.cell = ""}; }
// Separate ops with gates, as in an LSTM or GRU, in a recording without sizes.
How Gated() {
  return {.cell = "", .sizes = false, .more = {"aten::sigmoid", "aten::mul"}};
}

TEST(RnnInPythonTest, PredictsThatOnlyTheProductsOfTheCellsRemain) {
  const Report report = Of({});
  const Finding* finding = Find(report, "rnn-in-python");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  // Forward: 12 cells of 70 us and 11 gaps of 20 us between them, of which 12
  // products of 30 us remain. Backward: 12 nodes of 70 us, of which 40 us each
  // remain.
  EXPECT_NEAR(finding->gain.expected_ms, 1.06 - 0.36 + 0.84 - 0.48, 0.03);
  EXPECT_NE(finding->evidence.find("(aten::lstm_cell) runs 12 times per step"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("torch.nn.LSTM"), std::string::npos);
  EXPECT_NE(finding->fix_cpp.find("torch::nn::LSTM"), std::string::npos);
}

// nn.LSTM computes the products of the input, half of the forward ones, at
// once. At the rate of the large product they take 3 us in place of 30 us. GRU
// does not do this.
TEST(RnnInPythonTest, MergesTheInputProductsOfAnLstm) {
  const auto gain = [](const char* cell, double large_us) {
    const Report report = Of({.cell = cell, .large_us = large_us});
    return Find(report, "rnn-in-python")->gain.expected_ms;
  };
  const double merged = 12 * (30 - (30 + 3) / 2.0) * 1e-3;
  EXPECT_NEAR(gain("aten::lstm_cell", 36), 1.06 + merged, 0.03);
  EXPECT_NEAR(gain("aten::gru_cell", 36), 1.06, 0.03);
}

TEST(RnnInPythonTest, RemovesAllButTheProductsOnAGpu) {
  const Report report = Of({.on_gpu = true});
  const Finding* finding = Find(report, "rnn-in-python");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  // The host never waits. Of its 1.9 ms, 10 us per position and pass remain.
  EXPECT_NEAR(finding->gain.expected_ms, 1.06 + 0.84 - 0.24, 0.1);
}

// The device sets the pace: a kernel takes ten times as long as its op. cuDNN
// computes the input's products of all positions at once, at the rate of the
// large product: 20 us per product in place of 300 us. Everything but the
// products is saved.
TEST(RnnInPythonTest, MergesTheInputProductsOnAGpu) {
  const auto gain = [](const char* cell, double large_us) {
    const Report report = Of({.cell = cell,
                              .on_gpu = true,
                              .large_us = large_us,
                              .kernels_take = 10});
    return Find(report, "rnn-in-python")->gain.expected_ms;
  };
  const double merged = 12 * (300 - (300 + 20) / 2.0) * 1e-3;
  EXPECT_NEAR(gain("aten::gru_cell", 24) - gain("", 24), merged, 0.3);
  EXPECT_NEAR(gain("aten::gru_cell", 0) - gain("", 0), 0, 0.1);
}

TEST(RnnInPythonTest, NeedsEightPositions) {
  EXPECT_TRUE(IsClean(Of({.positions = 7}), "rnn-in-python"));
  EXPECT_FALSE(IsClean(Of({.positions = 8}), "rnn-in-python"));
}

TEST(RnnInPythonTest, NeedsNoSizesForACellOp) {
  EXPECT_NE(
      Find(Of({.cell = "aten::gru_cell", .sizes = false}), "rnn-in-python"),
      nullptr);
}

// How far the products shrink when they merge follows from their sizes.
TEST(RnnInPythonTest, BoundsTheGainOfACellOpOnAGpuWithoutSizes) {
  const Report sized = Of({.on_gpu = true, .kernels_take = 10});
  const Report report =
      Of({.on_gpu = true, .sizes = false, .kernels_take = 10});
  const Finding* finding = Find(report, "rnn-in-python");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(Find(sized, "rnn-in-python")->gain_kind, GainKind::kPredicted);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_GT(finding->gain.expected_ms,
            Find(sized, "rnn-in-python")->gain.expected_ms);
}

TEST(RnnInPythonTest, IgnoresOneCallForTheWholeSequence) {
  EXPECT_TRUE(IsClean(Of({.whole = "aten::lstm"}), "rnn-in-python"));
}

TEST(RnnInPythonTest, SaysWhatElseTheLoopCalls) {
  const Report report = Of({.attends = true});
  const Finding* finding = Find(report, "rnn-in-python");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("the loop calls aten::bmm"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("torch.compile"), std::string::npos);
  // The host code between the cells remains.
  EXPECT_NEAR(finding->gain.expected_ms, 0.84 - 0.36 + 0.84 - 0.48, 0.03);
}

// The attention's query is the state, which one call for the whole sequence
// cannot supply.
TEST(RnnInPythonTest, IgnoresADecoderWhoseCellsReadAttention) {
  EXPECT_TRUE(IsClean(Of({.attends = true, .joins = true}), "rnn-in-python"));
  // Without attention, the joined inputs are known before the loop.
  EXPECT_FALSE(IsClean(Of({.joins = true}), "rnn-in-python"));
}

// For example, a world model draws a latent state from the cell's state.
TEST(RnnInPythonTest, IgnoresInputsComputedFromTheState) {
  const auto with = [](const std::string& layer) {
    return Of({.joins = true, .layer = layer});
  };
  EXPECT_TRUE(IsClean(with("(float[4,16],float[8,16])"), "rnn-in-python"));
  // A layer that reads only data, and a layer whose result does not fit into
  // the cell's input.
  EXPECT_FALSE(IsClean(with("(float[4,9],float[8,9])"), "rnn-in-python"));
  EXPECT_FALSE(IsClean(with("(float[4,16],float[7,16])"), "rnn-in-python"));
}

TEST(RnnInPythonTest, IgnoresNoiseScaledByTheState) {
  How how{.joins = true, .layer = "(float[4,16],float[8,16])", .noise = true};
  EXPECT_FALSE(IsClean(Of(how), "rnn-in-python"));
  how.scales = true;
  EXPECT_TRUE(IsClean(Of(how), "rnn-in-python"));
}

TEST(RnnInPythonTest, SeesACellOfSeparateOps) {
  const Report report = Of(Written());
  const Finding* finding = Find(report, "rnn-in-python");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("(addmm > add > tanh) runs 12 times"),
            std::string::npos)
      << finding->evidence;
}

TEST(RnnInPythonTest, IgnoresLayersWithWeightsOfTheirOwn) {
  How layers = Written();
  layers.own_weights = true;
  EXPECT_TRUE(IsClean(Of(layers), "rnn-in-python"));
}

TEST(RnnInPythonTest, IgnoresProductsWithoutAnInput) {
  How chain = Written();
  chain.adds = false;
  EXPECT_TRUE(IsClean(Of(chain), "rnn-in-python"));
}

TEST(RnnInPythonTest, NeedsSizesOrGatesAndABackwardPassForSeparateOps) {
  How blind = Written();
  blind.sizes = false;
  EXPECT_TRUE(IsClean(Of(blind), "rnn-in-python"));
  for (How inference : {Written(), Gated()}) {
    inference.backward = false;
    EXPECT_TRUE(IsClean(Of(inference), "rnn-in-python"));
  }
}

TEST(RnnInPythonTest, SeesAGatedCellWithoutSizes) {
  for (const char* mixes : {"aten::mul", "aten::addcmul", "aten::lerp"}) {
    How how = Gated();
    how.more.back() = mixes;
    const Report report = Of(how);
    const Finding* finding = Find(report, "rnn-in-python");
    ASSERT_NE(finding, nullptr) << mixes;
    EXPECT_EQ(finding->gain_kind, GainKind::kBound);
    EXPECT_GT(finding->gain.expected_ms, 0);
    EXPECT_NE(finding->evidence.find("(addmm > add > tanh > sigmoid > "),
              std::string::npos)
        << finding->evidence;
    EXPECT_NE(finding->assumption.find("sizes of its products were not"),
              std::string::npos)
        << finding->assumption;
  }
}

// Without sizes, nothing tells how long merged products take. So the bound also
// has the products, which take 300 us forward and 400 us backward.
TEST(RnnInPythonTest, BoundsTheGainOnAGpuWithoutSizes) {
  How how = Gated();
  how.on_gpu = true;
  how.kernels_take = 10;
  const Report report = Of(how);
  const Finding* finding = Find(report, "rnn-in-python");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 12 * (1.1 + 0.7), 0.1);
}

TEST(RnnInPythonTest, NeedsEveryPartOfAGatedCellWithoutSizes) {
  How without = Gated();
  without.bounded_by = "aten::relu";
  EXPECT_TRUE(IsClean(Of(without), "rnn-in-python"));
  without = Gated();
  without.more = {"aten::mul"};
  EXPECT_TRUE(IsClean(Of(without), "rnn-in-python"));
  without.more = {"aten::sigmoid"};
  EXPECT_TRUE(IsClean(Of(without), "rnn-in-python"));
  // A ConvLSTM, which no call of torch.nn.LSTM can replace.
  without = Gated();
  without.product = "aten::convolution";
  EXPECT_TRUE(IsClean(Of(without), "rnn-in-python"));
}

// Layers that share weights may have gates, too.
TEST(RnnInPythonTest, IgnoresAttentionAndNormsAmongGatesWithoutSizes) {
  for (const char* other :
       {"aten::_softmax", "aten::native_layer_norm", "aten::bmm"}) {
    How layers = Gated();
    layers.more.push_back(other);
    EXPECT_TRUE(IsClean(Of(layers), "rnn-in-python")) << other;
  }
}

TEST(RnnInPythonTest, NeedsEightGatedCellsThatShareWeightsWithoutSizes) {
  How how = Gated();
  how.positions = 7;
  EXPECT_TRUE(IsClean(Of(how), "rnn-in-python"));
  how.positions = 8;
  EXPECT_NE(Find(Of(how), "rnn-in-python"), nullptr);
  how.own_weights = true;
  EXPECT_TRUE(IsClean(Of(how), "rnn-in-python"));
}

TEST(RnnInPythonTest, TrustsSizesMoreThanGates) {
  How how = Gated();
  how.sizes = true;
  how.adds = false;
  EXPECT_TRUE(IsClean(Of(how), "rnn-in-python"));
}

TEST(RnnInPythonTest, SupersedesGeneralAdvice) {
  // The loop causes nearly all framework time, and nearly all time that a
  // larger batch would amortise.
  const Report report = Of({.positions = 250});
  ASSERT_NE(Find(report, "rnn-in-python"), nullptr);
  const Finding* batch = Find(report, "small-batch");
  EXPECT_TRUE(batch == nullptr ||
              batch->evidence.find("after the change of rnn-in-python") !=
                  std::string::npos);
  EXPECT_EQ(
      std::ranges::count(report.superseded, "launch-bound (by rnn-in-python)"),
      1);
}

TEST(RnnInPythonTest, LeavesOtherFrameworkTimeToGeneralAdvice) {
  // Other ops cause as much framework time again.
  How how{.positions = 250};
  how.other_ops = 1000;
  const Report report = Of(how);
  const Finding* finding = Find(report, "launch-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("after the change of rnn-in-python"),
            std::string::npos)
      << finding->evidence;
  // 18 us of each 20 us gap between the other ops.
  EXPECT_NEAR(finding->gain.expected_ms, 18, 1);
  EXPECT_NEAR(
      finding->baseline_ms,
      report.steps.mean_ms - Find(report, "rnn-in-python")->gain.expected_ms,
      0.1);
}

}  // namespace
}  // namespace stepscope::recurrence_test
