#include "analysis/rules/rule_testing.h"
#include "support/engine_text.h"

namespace stepscope::ensembles_test {
namespace {

constexpr const char* kRule = "networks-one-by-one";

// Networks of two layers: 24 to 96 and 96 to `width`. Each op and each node
// takes 500 us.
struct How {
  int networks = 8;
  std::string width = "36";
  bool shared = false;          // the networks share weights
  bool inner_backward = false;  // each network is followed by its backward pass
  bool sums = false;            // an op between two networks
  std::string picked = "";      // each network takes rows of this tensor
  std::string joins = "";       // an op after each network
};

Report Of(const How& how) {
  EngineText text;
  int sequence = 0;
  for (int step = 0; step < 4; ++step) {
    const auto backward = [&](int network) {
      const int number = sequence + 3 * network;
      const bool added = how.shared && network + 1 < how.networks;
      text.Node(number + 2, 500);
      text.Node(number + 1, 500);
      text.Node(number, 500, added ? "float[96,24]" : "");
      if (!how.shared) text.Keep("float[96,24]");
    };
    for (int i = 0; i < how.networks; ++i) {
      const int number = sequence + 3 * i;
      if (!how.picked.empty()) {
        text.Op("aten::index_select",
                "(float[" + how.picked + "],Scalar=\"0\",long int[64])", 10);
      }
      text.Op("aten::linear", "(float[64,24],float[96,24],float[96])", 500,
              number);
      text.Op("aten::relu", "(float[64,96])", 500, number + 1);
      text.Op(
          "aten::linear",
          "(float[64,96],float[" + how.width + ",96],float[" + how.width + "])",
          500, number + 2);
      if (how.sums && i + 1 < how.networks) {
        text.Op("aten::add", "(float[64,1],float[64,1])", 10);
      }
      if (!how.joins.empty()) {
        text.Op(how.joins, "(float[512,24],float[512,24])", 10);
      }
      if (how.inner_backward) backward(i);
    }
    if (!how.inner_backward) {
      for (int i = how.networks; i-- > 0;) backward(i);
    }
    if (how.shared) text.Keep("float[96,24]");
    text.Update();
    sequence += 3 * how.networks;
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(EnsemblesTest, FindsMembersThatRunOneByOne) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(
      finding->evidence.find("8 networks of one shape, with 2 layers each "
                             "that make [64, 36] of [64, 24]"),
      std::string::npos)
      << finding->evidence;
  const Report summed = Of({.sums = true});
  EXPECT_NE(Find(summed, kRule)->evidence.find("8 networks"),
            std::string::npos);
  EXPECT_TRUE(IsClean(Of({.networks = 2}), kRule));
  EXPECT_FALSE(IsClean(Of({.networks = 3}), kRule));
}

TEST(EnsemblesTest, IgnoresBlocksOfOneNetwork) {
  EXPECT_TRUE(IsClean(Of({.width = "24"}), kRule));
}

// Experts return tensors as wide as their tokens.
TEST(EnsemblesTest, FindsNetworksThatTakeRowsOfOneTensor) {
  const Report report = Of({.width = "24", .picked = "512,24"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(finding->evidence.find("8 networks"), std::string::npos)
      << finding->evidence;
  // The program adds up all results in place.
  EXPECT_FALSE(IsClean(
      Of({.width = "24", .picked = "512,24", .joins = "aten::add_"}), kRule));
}

TEST(EnsemblesTest, IgnoresRowsThatMayComeFromTheNetworkBefore) {
  EXPECT_TRUE(IsClean(
      Of({.width = "24", .picked = "512,24", .joins = "aten::add"}), kRule));
  // A tensor no larger than a result may be a result of the network before.
  EXPECT_TRUE(IsClean(Of({.width = "24", .picked = "32,24"}), kRule));
}

TEST(EnsemblesTest, IgnoresSharedWeights) {
  EXPECT_TRUE(IsClean(Of({.shared = true}), kRule));
}

TEST(EnsemblesTest, IgnoresNetworksThatAreTrainedOneAfterTheOther) {
  EXPECT_TRUE(IsClean(Of({.inner_backward = true}), kRule));
}

}  // namespace
}  // namespace stepscope::ensembles_test
