// Tests unread-gradients for heads trained on a frozen network whose gradients
// are computed anyway.
#include <string>
#include <vector>

#include "rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::gradients_of_heads_test {
namespace {

constexpr char kRule[] = "unread-gradients";

struct Network {
  // Inputs of the layers, which have 32 outputs each. The head is the last.
  std::vector<std::string> widths = {"8", "16", "32"};
  std::string updated = "float[32,32],float[32]";  // what the optimizer updates
  std::string read = "";  // what `reader` reads between backward and update
  std::string reader = "aten::stack";
};

// Steps of linear layers with biases, all with 32 outputs. A layer's backward
// node takes 4 ms, of which 1 ms computes the weight's gradient and 1.5 ms the
// input's. The node of each parameter takes 20 us.
Report Trained(const Network& network) {
  CpuText text;
  const int layers = static_cast<int>(network.widths.size());
  const auto keep = [&](const std::string& gradient) {
    text.Nested(
        "kind=backward autograd::engine::evaluate_function: "
        "torch::autograd::AccumulateGrad",
        20, "inputs=(" + gradient + ") torch::autograd::AccumulateGrad", 15);
  };
  for (int step = 0; step < 6; ++step) {
    const auto number = [&](int layer) {
      return "sequence=" + std::to_string(layers * step + layer) + " ";
    };
    for (int i = 0; i < layers; ++i) {
      const std::string& width = network.widths[i];
      text.Op(number(i) + "inputs=(float[4," + width + "],float[32," + width +
                  "],float[32]) aten::linear",
              1'000);
    }
    for (int i = layers; i-- > 0;) {
      const std::string& width = network.widths[i];
      text.Nested("kind=backward " + number(i) + "AddmmBackward0", 4'000,
                  "inputs=(float[32,4],float[4," + width + "]) aten::mm", 1'000,
                  "inputs=(float[4,32],float[32," + width + "]) aten::mm",
                  1'500);
      keep("float[32]");
      keep("float[32," + width + "]");
    }
    if (!network.read.empty()) {
      text.Op("inputs=(" + network.read + ") " + network.reader, 10);
    }
    text.Begin();
    text.Op("inputs=(TensorList(" + network.updated + "),TensorList(" +
                network.updated + ")) aten::_foreach_add_",
            100);
    text.EndRange("kind=optimizer Optimizer.step#SGD.step");
    text.EndStep();
  }
  return text.Analyzed();
}

// Returns for example "4 parameters", or "" without a finding.
std::string Unread(const Network& network) {
  const Report report = Trained(network);
  const Finding* finding = Find(report, kRule);
  if (finding == nullptr) return "";
  const std::string begin = "Backward computes gradients of ";
  EXPECT_EQ(finding->evidence.find(begin), 0u) << finding->evidence;
  const size_t end = finding->evidence.find(" that no optimizer updates");
  return finding->evidence.substr(begin.size(), end - begin.size());
}

TEST(GradientsOfHeadsTest, CountsTheNetworkAlthoughAllBiasesHaveOneSize) {
  const Report report = Trained({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("4 parameters that no optimizer updates"),
            std::string::npos)
      << finding->evidence;
  // Saves two layers, and the input gradient with which the second one's
  // backward starts.
  EXPECT_NEAR(finding->gain.expected_ms, 2 * (4 + 2 * 0.02) + 1.5, 0.001);
  EXPECT_NE(finding->fix_python.find("in front of the first trained one"),
            std::string::npos);
}

constexpr char kAll[] = "float[32,8],float[32,16],float[32,32],float[32]";

TEST(GradientsOfHeadsTest, ExcludesSizesThatAnOpReads) {
  // The weights still have unique sizes.
  EXPECT_EQ(Unread({.read = "float[32]"}), "2 parameters");
  EXPECT_EQ(Unread({.read = "float[32,32],float[32]"}), "2 parameters");
  EXPECT_EQ(Unread({.read = "float[4,4]"}), "4 parameters");
  EXPECT_EQ(Unread({.read = kAll}), "");
}

// clip_grad_norm_() takes all gradients, including the frozen ones.
TEST(GradientsOfHeadsTest, ClippingReadsAllGradients) {
  EXPECT_EQ(Unread({.read = "TensorList(" + std::string(kAll) + ")",
                    .reader = "aten::_foreach_norm"}),
            "");
}

TEST(GradientsOfHeadsTest, CountsOnlyWhatRunsBehindTheTrainedLayersInBackward) {
  // Only a layer in the middle is trained.
  EXPECT_EQ(Unread({.widths = {"8", "32", "16"}}), "2 parameters");
  // The head and the layer after a frozen one are trained.
  EXPECT_EQ(Unread({.updated = "float[32,32],float[32],float[32,8]"}),
            "1 parameter");
  // The head has two layers.
  EXPECT_EQ(
      Unread({.updated = "float[32,32],float[32],float[32,16],float[32]"}),
      "2 parameters");
  // The bias of the head's first layer is frozen. Sizes do not show which of
  // the three biases is trained.
  EXPECT_EQ(Unread({.updated = "float[32,32],float[32,16],float[32]"}),
            "1 parameter");
}

// Nothing shows that the first layer is not the trained one.
TEST(GradientsOfHeadsTest, NeedsAnUnreadSize) {
  EXPECT_EQ(Unread({.widths = {"32", "32"}}), "");
  EXPECT_EQ(Unread({.widths = {"32", "32", "32"}}), "");
}

}  // namespace
}  // namespace stepscope::gradients_of_heads_test
