#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"
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

// A layer with `experts` experts, whose ops launch kernels of 5 us.
struct Mixture {
  int experts = 16;
  int products = 2;           // per expert
  bool lists = true;          // each pass asks for the places of its tokens
  bool adds_by_index = true;  // the results are added to those of all tokens
  bool between = false;       // another product runs between two passes
};

Report Of(const Mixture& how) {
  ComputeText text;
  const auto op = [&](const char* name) {
    text.Op(name, "", {{std::string("a kernel of ") + name, 5}}, 20);
  };
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < how.experts; ++i) {
      text.Begin();
      if (how.lists) op("aten::nonzero");
      text.End("aten::where", "", 25);
      op("aten::index");
      for (int k = 0; k < how.products; ++k) op("aten::mm");
      op("aten::mul");
      op(how.adds_by_index ? "aten::index_add_" : "aten::add_");
      if (how.between) op("aten::mm");
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(ExpertsOneByOneTest, FiresOnALoopOverExperts) {
  const Report report = Of(Mixture{});
  const Finding* finding = Find(report, "experts-one-by-one");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(finding->evidence.find("16 experts 1 time per step"),
            std::string::npos)
      << finding->evidence;
  // The host takes 125 us per expert, of which one remains.
  EXPECT_GT(finding->gain.expected_ms, 0.8 * 15 * 0.125);
  EXPECT_LT(finding->gain.expected_ms, 16 * 0.125);
}

TEST(ExpertsOneByOneTest, StaysSilentOnOtherLoops) {
  for (const Mixture& how :
       {Mixture{.experts = 6}, Mixture{.products = 1}, Mixture{.lists = false},
        Mixture{.adds_by_index = false}, Mixture{.between = true}}) {
    EXPECT_EQ(Find(Of(how), "experts-one-by-one"), nullptr);
  }
}

}  // namespace
}  // namespace stepscope::ensembles_test
