#include "analysis/rules/rule_testing.h"
#include "support/engine_text.h"

namespace stepscope::input_layers_test {
namespace {

constexpr const char* kRule = "input-layer-in-loop";
constexpr const char* kWeight = "float[32,3,3,3]";

// A video of 12 frames in a batch of 4. Per frame, a convolution takes 1 ms, an
// activation 100 us, a layer 500 us and the following cell 200 us. Their nodes
// take as long.
struct How {
  int frames = 12;
  std::string picks =
      "(float[4,12,3,32,32],Scalar=\"1\",Scalar=\"0\") "
      "aten::select";           // picks a frame
  bool own_weights = false;     // each frame has its own weight
  bool needs_gradient = false;  // so does the convolution's input
  bool inner_backward = false;  // runs after each frame
};

Report Of(const How& how) {
  EngineText text;
  int sequence = 0;
  for (int step = 0; step < 4; ++step) {
    const auto backward = [&](int frame) {
      const int number = sequence + 4 * frame;
      text.Node(number + 3, 200);
      text.Node(number + 2, 500);
      text.Node(number + 1, 100);
      const bool added = !how.own_weights && frame + 1 < how.frames;
      text.Node(number, 1000, added ? kWeight : "", how.needs_gradient);
      if (how.own_weights) text.Keep(kWeight);
    };
    for (int i = 0; i < how.frames; ++i) {
      const int number = sequence + 4 * i;
      const size_t name = how.picks.find(") ") + 2;
      text.Op(how.picks.substr(name), how.picks.substr(0, name - 1), 5);
      text.Op("aten::conv2d",
              "(float[4,3,32,32]," + std::string(kWeight) + ",float[32])", 1000,
              number);
      text.Op("aten::relu", "(float[4,32,15,15])", 100, number + 1);
      text.Op("aten::linear", "(float[4,7200],float[64,7200],float[64])", 500,
              number + 2);
      text.Op("aten::gru_cell", "(float[4,64],float[4,96])", 200, number + 3);
      if (how.inner_backward) backward(i);
    }
    if (!how.inner_backward) {
      for (int i = how.frames; i-- > 0;) backward(i);
    }
    if (!how.own_weights) text.Keep(kWeight);
    text.Update();
    sequence += 4 * how.frames;
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(InputLayersTest, FindsAnEncoderThatRunsFrameByFrame) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(finding->evidence.find("2 layers run 12 times per step with the "
                                   "same weights, each time on another part of "
                                   "[4, 3, 32, 32]"),
            std::string::npos)
      << finding->evidence;
  // The cell needs the previous state and remains.
  EXPECT_LT(finding->gain.expected_ms, 12 * (1.6 + 1.6));
  EXPECT_GT(finding->gain.expected_ms, 1);
}

TEST(InputLayersTest, IgnoresRunsWithInputsOfTheirOwn) {
  // The input is not a part of a larger tensor.
  EXPECT_TRUE(IsClean(
      Of({.picks = "(float[4,3,32,32],float[4,3,32,32]) aten::add"}), kRule));
  EXPECT_TRUE(IsClean(Of({.needs_gradient = true}), kRule));
}

TEST(InputLayersTest, IgnoresRunsWithTheirOwnWeightsOrBackwardPass) {
  EXPECT_TRUE(IsClean(Of({.own_weights = true}), kRule));
  EXPECT_TRUE(IsClean(Of({.inner_backward = true}), kRule));
  EXPECT_TRUE(IsClean(Of({.frames = 3}), kRule));
  EXPECT_FALSE(IsClean(Of({.frames = 4}), kRule));
}

}  // namespace
}  // namespace stepscope::input_layers_test
