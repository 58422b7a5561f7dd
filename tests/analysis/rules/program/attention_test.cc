#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

namespace stepscope::attention_test {
namespace {

// Attention written as separate ops: 8 heads, 64 positions, width 32.
struct How {
  bool on_gpu = false;
  bool sizes = true;
  bool backward = true;
  std::string extra = {};          // another op on the scores
  std::string values = "8,64,64";  // the first operand of the second product
  std::string type = "float";
  bool trained_mask = false;   // the mask has a gradient, which is reduced
  bool full_bias = false;      // each pair has a bias with a gradient
  bool fallback = false;       // inside scaled_dot_product_attention
  bool projects = false;       // projects the values between the two products
  int heads = 1;               // computed one after the other
  std::string mask = "64,64";  // size of the mask added to the scores
  std::string length = "64";   // replaces 64 in all sizes
  bool casts = false;          // casts the weights in the second product's call
};

class Attention {
 public:
  explicit Attention(How how) : how_(std::move(how)) {}

  Report Analyzed() {
    for (int step = 0; step < 4; ++step) {
      if (how_.fallback) text_.Begin();
      for (int head = 0; head < how_.heads; ++head) Forward();
      if (how_.fallback) {
        text_.Pass(1);
        text_.End("aten::_scaled_dot_product_attention_math");
      }
      Op("aten::mm", "", 3000);
      if (how_.backward) Backward();
      Op("aten::mm", "", 3000);
      sequence_ += 10;
      text_.EndStep();
    }
    return text_.Analyzed();
  }

 private:
  void Op(const std::string& name, std::string dims, double us,
          const std::string& fields = "") {
    for (size_t at = 0; (at = dims.find("64", at)) != std::string::npos;) {
      dims.replace(at, 2, how_.length);
      at += how_.length.size();
    }
    std::string inputs;
    for (size_t at = 0; how_.sizes && at < dims.size();) {
      const size_t end = std::min(dims.find('|', at), dims.size());
      inputs += (inputs.empty() ? "(" : ",") + how_.type + "[" +
                dims.substr(at, end - at) + "]";
      at = end + 1;
    }
    if (!inputs.empty()) inputs += ")";
    if (how_.on_gpu) {
      text_.Op(name, inputs, {{"a kernel of " + name, us}}, 10, fields);
    } else {
      text_.Op(name, inputs, {}, us, fields);
    }
  }
  std::string Number(int which) const {
    return "sequence=" + std::to_string(sequence_ + which);
  }
  void Forward() {
    Op("aten::bmm", "8,64,32|8,32,64", 500, Number(1));
    Op("aten::div", "8,64,64", 300, Number(2));
    if (!how_.extra.empty()) Op(how_.extra, "8,64,64", 100);
    Op("aten::add", how_.full_bias ? "8,64,64|8,64,64" : "8,64,64|" + how_.mask,
       300, Number(3));
    text_.Begin();
    Op("aten::_softmax", "8,64,64", 400, Number(4));
    text_.End("aten::softmax", "", how_.on_gpu ? 12 : 402, Number(4));
    if (how_.projects) Op("aten::mm", "512,256|256,32", 200);
    if (how_.casts) text_.Begin();
    if (how_.casts) Op("aten::copy_", "8,64,64|8,64,64", 200);
    Op("aten::bmm", how_.values + "|8,64,32", 500, Number(5));
    if (how_.casts) text_.End("aten::matmul", "", 2);
  }
  void Node(const std::string& name, int of, const std::string& op, double us) {
    text_.Begin();
    text_.Pass(1);
    Op(op, "", us);
    if (name == "AddBackward0" && how_.trained_mask) Op("aten::sum", "", 10);
    text_.Pass(1);
    text_.End("autograd::engine::evaluate_function: " + name, "", 0,
              "kind=backward " + Number(of));
  }
  void Backward() {
    Node("BmmBackward0", 5, "aten::bmm", 1000);
    Node("SoftmaxBackward0", 4, "aten::_softmax_backward_data", 600);
    Node("AddBackward0", 3, "aten::view", 0);
    Node("DivBackward0", 2, "aten::div", 400);
    Node("BmmBackward0", 1, "aten::bmm", 1000);
  }

  How how_;
  ComputeText text_;
  int sequence_ = 0;
};

Report Of(How how) { return Attention(std::move(how)).Analyzed(); }

// The program writes weights @ self.value(x).
TEST(AttentionByHandTest, AllowsProjectingTheValuesBetweenTheProducts) {
  const Report report = Of({.projects = true});
  const Finding* finding = Find(report, "attention-by-hand");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1.5, 0.05);
  EXPECT_NE(finding->evidence.find("softmax > bmm, scores of"),
            std::string::npos)
      << finding->evidence;
}

// A fused kernel skips scores above the diagonal. Of the 128 x 128 blocks on
// the diagonal, it saves half.
TEST(AttentionByHandTest, SubtractsTheMaskedHalfOfCausalScores) {
  const double left = (512.0 + 128) / (2 * 512);
  const double products = (1 - left) * 3.0, again = 0.25 * left * 2.0;
  const Report causal = Of({.on_gpu = true, .length = "512"});
  EXPECT_NEAR(Find(causal, "attention-by-hand")->gain.expected_ms,
              2.0 + products - again, 0.05);
  const Report padded = Of({.on_gpu = true, .mask = "8,1,64", .length = "512"});
  EXPECT_NEAR(Find(padded, "attention-by-hand")->gain.expected_ms, 1.5, 0.05);
}

// Separate products move the scores to memory and back, and these are small
// enough to take no time in a fused kernel. Its float32 is no faster.
TEST(AttentionByHandTest, LetsProductsIn16BitsRunAtTheFlashRate) {
  const auto gain_ms = [](const char* type) {
    const Report report =
        Of({.on_gpu = true, .backward = false, .type = type, .mask = "8,1,64"});
    return Find(report, "attention-by-hand")->gain.expected_ms;
  };
  EXPECT_NEAR(gain_ms("float"), 1.0, 0.05);
  EXPECT_NEAR(gain_ms("c10::Half"), 2.0, 0.05);
}

TEST(AttentionByHandTest, SeesHeadsThatRunOneByOne) {
  const Report report = Of({.backward = false, .projects = true, .heads = 4});
  const Finding* finding = Find(report, "attention-by-hand");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(finding->evidence.find("one after the other, 4 heads in a row"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("all heads at once"), std::string::npos);
}

TEST(AttentionByHandTest, PredictsThatOnlyTheProductsRemain) {
  const Report report = Of({});
  const Finding* finding = Find(report, "attention-by-hand");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  // Forward saves 1 ms. Backward saves 1 ms minus 0.5 ms: computing the scores
  // again takes a quarter of the products' 2 ms.
  EXPECT_NEAR(finding->gain.expected_ms, 1.5, 0.05);
  EXPECT_NE(finding->evidence.find("bmm > div > add > softmax > bmm, scores of "
                                   "[8, 64, 64], 131 kB"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("scaled_dot_product_attention(q, k, v)"),
            std::string::npos);
  EXPECT_EQ(std::ranges::count(report.plan.changes, "fused attention"), 1);
}

TEST(AttentionByHandTest, RemovesTheKernelsOnAGpu) {
  const Report report = Of({.on_gpu = true});
  const Finding* finding = Find(report, "attention-by-hand");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  EXPECT_NEAR(finding->gain.expected_ms, 1.5, 0.05);
  EXPECT_NE(finding->fix_python.find("bfloat16"), std::string::npos);
}

TEST(AttentionByHandTest, CountsCastsOfTheWeights) {
  const Report report = Of({.on_gpu = true, .casts = true});
  const Finding* finding = Find(report, "attention-by-hand");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1.7, 0.05);
}

// In such a call, the op around a product also has time of its own.
TEST(AttentionByHandTest, IgnoresInterruptionsOfAProductsCall) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("inputs=(float[8,64,32],float[8,32,64]) aten::bmm", 500);
    text.Op("inputs=(float[8,64,64]) aten::div", 300);
    text.Op("inputs=(float[8,64,64]) aten::_softmax", 400);
    text.Nested("aten::matmul", 900,
                "inputs=(float[8,64,64],float[8,64,32]) aten::bmm", 500);
    text.Op("aten::sort", 3'000);
    text.EndStep();
  }
  EXPECT_TRUE(Promises(text.Analyzed(), "attention-by-hand"));
}

// One head of one sample. If `layer`, the scores are a layer's output.
Report OfMatrices(bool layer, const std::string& keys = "64") {
  CpuText text;
  const std::string scores = "float[64," + keys + "]";
  for (int step = 0; step < 4; ++step) {
    for (int head = 0; head < 8; ++head) {
      const std::string product =
          "inputs=(float[64,16],float[16," + keys + "]) aten::mm";
      if (layer) {
        text.Nested("aten::linear", 210, product, 200);
      } else {
        text.Op(product, 200);
      }
      text.Op("inputs=(" + scores + ") aten::div", 100);
      text.Op("inputs=(" + scores + ") aten::_softmax", 300);
      text.Op("inputs=(" + scores + ",float[" + keys + ",16]) aten::mm", 200);
    }
    text.Op("aten::sort", 3'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(AttentionByHandTest, SeesOneHeadOfOneSample) {
  const Report report = OfMatrices(false);
  const Finding* finding = Find(report, "attention-by-hand");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical);
  EXPECT_NE(finding->evidence.find("8 heads in a row"), std::string::npos)
      << finding->evidence;
  // The scores are a layer's output, or the second product has another inner
  // size, as logits of other classes have.
  EXPECT_TRUE(IsClean(OfMatrices(true), "attention-by-hand"));
  EXPECT_TRUE(IsClean(OfMatrices(false, "10"), "attention-by-hand"));
}

TEST(AttentionByHandTest, InferenceHasOnlyTheForwardPass) {
  const Report report = Of({.backward = false});
  const Finding* finding = Find(report, "attention-by-hand");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1.0, 0.05);
}

TEST(AttentionByHandTest, IsAHintWhereSizesWereNotRecorded) {
  const Report report = Of({.sizes = false});
  const Finding* finding = Find(report, "attention-by-hand");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NE(finding->evidence.find("record_shapes"), std::string::npos);
}

TEST(AttentionByHandTest, IgnoresProductsWhoseSizesDoNotFit) {
  EXPECT_TRUE(IsClean(Of({.values = "8,64,32"}), "attention-by-hand"));
}

TEST(AttentionByHandTest, StaysSilentOnWhatTheFusedKernelCannotDo) {
  EXPECT_TRUE(IsClean(Of({.extra = "aten::tanh"}), "attention-by-hand"));
  EXPECT_FALSE(IsClean(Of({.extra = "aten::mul"}), "attention-by-hand"));
}

TEST(AttentionByHandTest, AllowsDropoutThatIsSwitchedOff) {
  EXPECT_NE(Find(Of({.extra = "aten::dropout"}), "attention-by-hand"), nullptr);
}

// The fused kernel for the CPU computes no gradient of the mask.
TEST(AttentionByHandTest, StaysSilentOnATrainedMaskOnACpu) {
  EXPECT_TRUE(IsClean(Of({.trained_mask = true}), "attention-by-hand"));
  EXPECT_TRUE(IsClean(Of({.full_bias = true}), "attention-by-hand"));
  EXPECT_FALSE(
      IsClean(Of({.backward = false, .full_bias = true}), "attention-by-hand"));
}

TEST(AttentionByHandTest, KeepsTheSumOfATrainedMasksGradientOnAGpu) {
  const Report fixed = Of({.on_gpu = true, .mask = "8,1,64"});
  const Report trained =
      Of({.on_gpu = true, .trained_mask = true, .mask = "8,1,64"});
  ASSERT_NE(Find(trained, "attention-by-hand"), nullptr);
  EXPECT_NEAR(Find(trained, "attention-by-hand")->gain.expected_ms,
              Find(fixed, "attention-by-hand")->gain.expected_ms, 0.01);
  EXPECT_NE(Find(trained, "attention-by-hand")->fix_python.find("attn_mask"),
            std::string::npos);
  EXPECT_NE(Find(Of({.on_gpu = true, .full_bias = true}), "attention-by-hand"),
            nullptr);
}

TEST(AttentionByHandTest, StaysSilentOnDropoutOnACpu) {
  const std::string dropout = "aten::native_dropout";
  EXPECT_TRUE(IsClean(Of({.extra = dropout}), "attention-by-hand"));
  EXPECT_NE(Find(Of({.on_gpu = true, .extra = dropout}), "attention-by-hand"),
            nullptr);
}

TEST(AttentionByHandTest, StaysSilentOnFloat64OnAGpu) {
  EXPECT_TRUE(
      IsClean(Of({.on_gpu = true, .type = "double"}), "attention-by-hand"));
  EXPECT_NE(Find(Of({.type = "double"}), "attention-by-hand"), nullptr);
}

TEST(AttentionByHandTest, SaysThatPyTorchTookTheFallback) {
  const Report report = Of({.fallback = true});
  const Finding* finding = Find(report, "attention-by-hand");
  ASSERT_NE(finding, nullptr);
  EXPECT_TRUE(finding->evidence.starts_with(
      "scaled_dot_product_attention falls back to single ops"))
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("sdpa_kernel"), std::string::npos);
}

TEST(AttentionByHandTest, IgnoresAClassifier) {
  ComputeText text;
  for (int i = 0; i < 4; ++i) {
    text.Op("aten::mm", "(float[64,32],float[32,10])", {}, 1000);
    text.Op("aten::_softmax", "(float[64,10])", {}, 1000);
    text.Op("aten::mm", "(float[64,10],float[10,32])", {}, 1000);
    text.EndStep();
  }
  EXPECT_TRUE(IsClean(text.Analyzed(), "attention-by-hand"));
}

}  // namespace
}  // namespace stepscope::attention_test
