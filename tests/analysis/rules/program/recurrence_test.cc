#include <algorithm>

#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::recurrence_test {
namespace {

// A loop over a sequence, a batch of 4 and a state of 16.
struct How {
  int positions = 12;
  std::string cell = "aten::lstm_cell";  // "": written out
  bool on_gpu = false;
  bool sizes = true;
  std::string whole = {};    // the op around all of it
  bool own_weights = false;  // each repeat accumulates gradients: layers
  bool adds = true;          // the input to the product
  bool backward = true;
  bool attends = false;    // a product between the cells
  bool joins = false;      // what the next cell reads, behind that product
  std::string layer = {};  // input and weight of a layer in front of each cell
  bool noise = false;      // picked behind that layer, as large as its result
  bool scales = false;     // both are multiplied
  double gap_us = 20;      // of the program's code before each cell
  int other_ops = 0;       // behind the loop, with gaps as well
  double large_us = 0;     // of a product with the rows of all positions
  double kernels_take = 0.1;  // of the time of their op
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
    Op("aten::addmm", "(float[16],float[4,16],float[16,16])", 30, number);
    if (how_.adds) Op("aten::add", "(float[4,16],float[4,16])", 20);
    Op("aten::tanh", "(float[4,16])", 20);
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

TEST(RnnInPythonTest, LeavesTheProductsOfALoopOfCells) {
  const Report report = Of({});
  const Finding* finding = Find(report, "rnn-in-python");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  // 12 cells of 70 us and 11 gaps of 20 us before them, of which 12 products of
  // 30 us stay; backward 12 of 70 us, of which 40 us stay.
  EXPECT_NEAR(finding->gain.expected_ms, 1.06 - 0.36 + 0.84 - 0.48, 0.03);
  EXPECT_NE(finding->evidence.find("(aten::lstm_cell) runs 12 times per step"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("torch.nn.LSTM"), std::string::npos);
  EXPECT_NE(finding->fix_cpp.find("torch::nn::LSTM"), std::string::npos);
}

// nn.LSTM makes half of the forward products, those of the input, at once: at
// the rate of the large product, 3 us for what took 30. GRU does not.
TEST(RnnInPythonTest, MakesTheProductsOfAnLstmsInputAtOnce) {
  const auto gain = [](const char* cell, double large_us) {
    const Report report = Of({.cell = cell, .large_us = large_us});
    return Find(report, "rnn-in-python")->gain.expected_ms;
  };
  const double merged = 12 * (30 - (30 + 3) / 2.0) * 1e-3;
  EXPECT_NEAR(gain("aten::lstm_cell", 36), 1.06 + merged, 0.03);
  EXPECT_NEAR(gain("aten::gru_cell", 36), 1.06, 0.03);
}

TEST(RnnInPythonTest, RemovesWhatIsNoProductOnAGpu) {
  const Report report = Of({.on_gpu = true});
  const Finding* finding = Find(report, "rnn-in-python");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  // The host waits for nothing: of its 1.9 ms, 10 us per position and pass are
  // left.
  EXPECT_NEAR(finding->gain.expected_ms, 1.06 + 0.84 - 0.24, 0.1);
}

// The device sets the pace: a cell's kernels take 100 us each. cuDNN makes the
// products of the input of all positions at once, as fast as the large product:
// 200 us for 12 of them. What is no product goes.
TEST(RnnInPythonTest, OnAGpuCudnnMakesTheProductsOfTheInputAtOnce) {
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

TEST(RnnInPythonTest, SevenPositionsAreTooFew) {
  EXPECT_TRUE(IsClean(Of({.positions = 7}), "rnn-in-python"));
  EXPECT_FALSE(IsClean(Of({.positions = 8}), "rnn-in-python"));
}

TEST(RnnInPythonTest, NeedsNoSizesWhereAnOpIsACell) {
  EXPECT_NE(
      Find(Of({.cell = "aten::gru_cell", .sizes = false}), "rnn-in-python"),
      nullptr);
}

TEST(RnnInPythonTest, OneCallForTheWholeSequenceIsNoLoop) {
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
  // The code between the cells stays.
  EXPECT_NEAR(finding->gain.expected_ms, 0.84 - 0.36 + 0.84 - 0.48, 0.03);
}

// The query of that attention is the state, which one call for the whole
// sequence does not know.
TEST(RnnInPythonTest, ADecoderThatReadsAttentionNeedsItsLoop) {
  EXPECT_TRUE(IsClean(Of({.attends = true, .joins = true}), "rnn-in-python"));
  // Inputs that are joined from others are known before the loop.
  EXPECT_FALSE(IsClean(Of({.joins = true}), "rnn-in-python"));
}

// As the latent state of a world model, which is drawn from the cell's.
TEST(RnnInPythonTest, AnInputMadeOfTheStateNeedsTheLoop) {
  const auto with = [](const std::string& layer) {
    return Of({.joins = true, .layer = layer});
  };
  EXPECT_TRUE(IsClean(with("(float[4,16],float[8,16])"), "rnn-in-python"));
  // A layer of the data, and one whose result the input does not hold.
  EXPECT_FALSE(IsClean(with("(float[4,9],float[8,9])"), "rnn-in-python"));
  EXPECT_FALSE(IsClean(with("(float[4,16],float[7,16])"), "rnn-in-python"));
}

TEST(RnnInPythonTest, NoiseIsScaledByTheState) {
  How how{.joins = true, .layer = "(float[4,16],float[8,16])", .noise = true};
  EXPECT_FALSE(IsClean(Of(how), "rnn-in-python"));
  how.scales = true;
  EXPECT_TRUE(IsClean(Of(how), "rnn-in-python"));
}

TEST(RnnInPythonTest, SeesACellThatIsWrittenOut) {
  const Report report = Of(Written());
  const Finding* finding = Find(report, "rnn-in-python");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("(addmm > add > tanh) runs 12 times"),
            std::string::npos)
      << finding->evidence;
}

TEST(RnnInPythonTest, LayersWithTheirOwnWeightsAreNoLoop) {
  How layers = Written();
  layers.own_weights = true;
  EXPECT_TRUE(IsClean(Of(layers), "rnn-in-python"));
}

TEST(RnnInPythonTest, AProductThatMeetsNoInputIsNoCell) {
  How chain = Written();
  chain.adds = false;
  EXPECT_TRUE(IsClean(Of(chain), "rnn-in-python"));
}

TEST(RnnInPythonTest, AWrittenCellNeedsSizesAndABackwardPass) {
  How blind = Written();
  blind.sizes = false;
  EXPECT_TRUE(IsClean(Of(blind), "rnn-in-python"));
  How inference = Written();
  inference.backward = false;
  EXPECT_TRUE(IsClean(Of(inference), "rnn-in-python"));
}

TEST(RnnInPythonTest, GeneralAdviceYields) {
  // The loop is nearly all of the framework's time, and of the time that a
  // larger batch would spread.
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

TEST(RnnInPythonTest, GeneralAdviceKeepsWhatTheLoopDoesNotExplain) {
  // As much framework code again, in other ops.
  How how{.positions = 250};
  how.other_ops = 1000;
  const Report report = Of(how);
  const Finding* finding = Find(report, "launch-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("after the change of rnn-in-python"),
            std::string::npos)
      << finding->evidence;
  // 18 of 20 us of each gap between those.
  EXPECT_NEAR(finding->gain.expected_ms, 18, 1);
  EXPECT_NEAR(
      finding->baseline_ms,
      report.steps.mean_ms - Find(report, "rnn-in-python")->gain.expected_ms,
      0.1);
}

}  // namespace
}  // namespace stepscope::recurrence_test
