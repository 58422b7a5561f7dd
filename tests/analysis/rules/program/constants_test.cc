#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::constants_test {
namespace {

constexpr const char* kRule = "constant-rebuilt";

struct Mask {
  std::string begins = "aten::ones";
  std::string from = {};  // arguments of `begins`, if not the sizes
  std::string takes = "float[256,256]";  // what `next` takes
  std::string next = "aten::triu";
  bool computes = true;
  bool grows = false;   // grows with each step
  bool trains = false;  // a backward pass visits it
  double us = 150;
};

Report Of(const Mask& how) {
  ComputeText text;
  for (int step = 0; step < 4; ++step) {
    const int size = how.grows ? 256 + step : 256;
    const std::string square =
        "[" + std::to_string(size) + ", " + std::to_string(size) + "]";
    text.Op("aten::linear", "(float[64,256],float[256,256])", {}, 500,
            "sequence=" + std::to_string(100 * step + 1));
    text.Op(how.begins, how.from.empty() ? "(=\"" + square + "\")" : how.from,
            {}, 50);
    const std::string made = how.grows ? "float[" + std::to_string(size) + "," +
                                             std::to_string(size) + "]"
                                       : how.takes;
    if (how.computes) {
      text.Op(how.next, "(" + made + ",=\"1\")", {}, how.us,
              how.trains ? "sequence=" + std::to_string(100 * step + 2) : "");
    }
    text.Op("aten::add", "(float[64,256],float[256])", {}, 100);
    text.Begin();
    text.Op("aten::mm", "", {}, 500);
    text.End("AddmmBackward0", "", 0,
             "kind=backward sequence=" + std::to_string(100 * step + 1));
    if (how.trains) {
      text.Begin();
      text.Op("aten::triu", "", {}, 10);
      text.End("TriuBackward0", "", 0,
               "kind=backward sequence=" + std::to_string(100 * step + 2));
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(ConstantRebuiltTest, AdvisesToKeepAConstant) {
  const Report report = Of({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 0.2, 0.01);
  EXPECT_NE(finding->evidence.find("from aten::ones to aten::triu, which makes "
                                   "[256, 256]"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("register_buffer"), std::string::npos);
}

TEST(ConstantRebuiltTest, CountsOnlyConstantsOfFixedSize) {
  // Random numbers, ops on other tensors, sizes that change, and tensors with a
  // gradient.
  EXPECT_TRUE(IsClean(Of({.begins = "aten::rand"}), kRule));
  EXPECT_TRUE(IsClean(Of({.from = "(float[256,256])"}), kRule));
  EXPECT_TRUE(IsClean(Of({.takes = "float[64,64]"}), kRule));
  EXPECT_TRUE(IsClean(Of({.grows = true}), kRule));
  EXPECT_TRUE(IsClean(Of({.trains = true}), kRule));
}

TEST(ConstantRebuiltTest, KnowsFunctionsOfSingleElements) {
  const auto of = [](const std::string& next) {
    return Of({.begins = "aten::linspace",
               .from = "(=\"0\",=\"1\",=\"65536\")",
               .takes = "float[65536]",
               .next = next});
  };
  EXPECT_FALSE(IsClean(of("aten::special_i0"), kRule));
  EXPECT_FALSE(IsClean(of("aten::lgamma"), kRule));
  EXPECT_TRUE(IsClean(of("aten::special_logsumexp"), kRule));
}

TEST(ConstantRebuiltTest, IgnoresTensorsThatAreOnlyFilled) {
  EXPECT_TRUE(IsClean(Of({.computes = false}), kRule));
}

TEST(ConstantRebuiltTest, IgnoresOtherTensorsOfTheSameSize) {
  // exp(ones) is unlikely, so its input is another tensor. And aten::add takes
  // two tensors, but the chain made only one.
  EXPECT_TRUE(IsClean(Of({.next = "aten::exp"}), kRule));
  EXPECT_FALSE(IsClean(Of({.begins = "aten::linspace",
                           .from = "(=\"0\",=\"1\",=\"65536\")",
                           .takes = "float[65536]",
                           .next = "aten::exp"}),
                       kRule));
  EXPECT_TRUE(IsClean(Of({.begins = "aten::linspace",
                          .from = "(=\"0\",=\"1\",=\"65536\")",
                          .takes = "float[65536],float[65536]",
                          .next = "aten::add"}),
                      kRule));
}

TEST(ConstantRebuiltTest, NeedsAMinimumOfTime) {
  EXPECT_TRUE(IsClean(Of({.us = 40}), kRule));
  EXPECT_FALSE(IsClean(Of({.us = 60}), kRule));
}

TEST(ConstantRebuiltTest, EndsAChainWhereItMeetsATensorOfItsSize) {
  // scores * (1 - eye): the chain ends before the product.
  ComputeText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::relu", "(float[9,9])", {}, 500);
    text.Op("aten::eye", "(=\"512\",,,,)", {}, 50);
    text.Op("aten::rsub", "(float[512,512],=\"1\")", {}, 60);
    text.Op("aten::mul", "(float[512,512],float[512,512])", {}, 200);
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("from aten::eye to aten::rsub"),
            std::string::npos)
      << finding->evidence;
}

// The rule follows sizes through ops that compute them from their arguments.
TEST(ConstantRebuiltTest, FollowsViewsAndJoins) {
  ComputeText text;
  const auto op = [&](const std::string& name, const std::string& inputs) {
    text.Op(name, inputs, {}, 30);
  };
  for (int step = 0; step < 4; ++step) {
    op("aten::arange", "(=\"0\",=\"8\",=\"2\",,,,)");
    op("aten::to", "(long[4],=\"6\")");
    op("aten::unsqueeze", "(float[4],=\"-1\")");
    op("aten::arange", "(=\"5\",,,,)");
    op("aten::mul", "(float[4,1],float[5])");
    op("aten::t", "(float[4,5])");
    op("aten::stack", "((float[5,4],float[5,4]),=\"0\")");
    op("aten::slice",
       "(float[2,5,4],=\"1\",=\"0\",=\"9223372036854775807\",=\"2\")");
    op("aten::transpose", "(float[2,3,4],=\"0\",=\"-1\")");
    op("aten::expand", "(float[4,3,2],=\"[7, -1, -1, -1]\")");
    op("aten::view", "(float[7,4,3,2],=\"[-1, 2]\")");
    op("aten::select", "(float[84,2],=\"1\",=\"0\")");
    op("aten::cat", "((float[84],float[84]),=\"0\")");
    op("aten::exp", "(float[168])");
    text.Op("aten::relu", "(float[9,9])", {}, 500);
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("to aten::exp, which makes [168]"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NEAR(finding->gain.expected_ms, 14 * 0.03, 0.01);
}

// A filter bank built filter by filter from numbers that are read one by one.
TEST(ConstantRebuiltTest, FollowsALoopOverTheNumbersOfTheChain) {
  const auto bank = [](const std::string& hertz) {
    ComputeText text;
    for (int step = 0; step < 4; ++step) {
      text.Op("aten::linear", "(float[64,256],float[256,256])", {}, 500);
      text.Op("aten::linspace", "(=\"0\",=\"1\",=\"20\")", {}, 10);
      text.Op("aten::mul", "(float[20],=\"700\")", {}, 10);
      text.Op("aten::linspace", "(=\"0\",=\"1\",=\"257\")", {}, 10);
      text.Op("aten::unbind", "(float[20],=\"0\")", {}, 20);
      for (int i = 0; i < 10; ++i) {
        text.Op("aten::sub", "(" + hertz + ",float[],=\"1\")", {}, 20);
        text.Op("aten::sub", "(float[]," + hertz + ",=\"1\")", {}, 20);
        text.Op("aten::minimum", "(" + hertz + "," + hertz + ")", {}, 20);
      }
      text.Op("aten::linear", "(float[64,256],float[256,256])", {}, 500);
      text.EndStep();
    }
    return text.Analyzed();
  };
  const Report report = bank("float[257]");
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 0.05 + 10 * 0.06, 0.01);
  EXPECT_NE(finding->evidence.find("from aten::linspace to aten::minimum"),
            std::string::npos)
      << finding->evidence;
  // A tensor of another size is data.
  EXPECT_TRUE(IsClean(bank("float[300]"), kRule));
}

// A resampling kernel that is built for each of four samples, as by
// torchaudio.functional.resample.
struct Loading {
  std::string before = {}, drawn = {};  // an op before each sample's chain
  std::string compares = {};            // an op in place of all after arange
};
Report Load(const Loading& how) {
  ComputeText text;
  for (int step = 0; step < 4; ++step) {
    text.Begin();
    for (int sample = 0; sample < 4; ++sample) {
      text.Op("aten::div", "(float[1,9000],long int[])", {}, 20);
      if (!how.before.empty()) text.Op(how.before, how.drawn, {}, 5);
      text.Op("aten::arange", "(=\"800\",,,,)", {}, 10);
      if (how.compares.empty()) {
        text.Op("aten::mul_", "(long[800],double[])", {}, 20);
        text.Op("aten::empty", "(ScalarList=\"[]\")", {}, 2);
        text.Op("aten::to", "(float[],,Scalar=\"6\")", {}, 1);
        text.Op("aten::lift_fresh", "(float[])", {}, 1);
        text.Op("aten::detach_", "(float[])", {}, 2);
        text.Op("aten::mul", "(float[],float[800])", {}, 20);
        text.Op("aten::i0", "(float[800])", {}, 200);
        text.Op("aten::i0", "(float[])", {}, 2);
        text.Op("aten::div", "(float[800],float[])", {}, 20);
      } else {
        text.Op(how.compares, "(long[800],long int[])", {}, 200);
      }
      text.Op("aten::conv1d", "(float[1,1,9000],float[160,1,815])", {}, 200);
    }
    text.EndRange("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                  "loader");
    text.Op("aten::linear", "(float[64,256],float[256,256])", {}, 3'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(ConstantRebuiltTest, SeesConstantsOfEachSample) {
  const Report report = Load({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4 * 0.278, 0.05);
  EXPECT_NE(finding->evidence.find("from aten::arange to aten::div"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("4 times per step, as for each sample"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("__init__"), std::string::npos);
  // The numbers may differ from sample to sample.
  EXPECT_EQ(finding->confidence, Confidence::kHint);
}

TEST(ConstantRebuiltTest, IgnoresNumbersOfASample) {
  // An augmentation draws a number, which may be one that the chain takes.
  EXPECT_TRUE(IsClean(Load({.before = "aten::uniform_", .drawn = "(float[1])"}),
                      kRule));
  EXPECT_FALSE(IsClean(
      Load({.before = "aten::normal_", .drawn = "(float[1,9000])"}), kRule));
  // A mask of a sample's length.
  EXPECT_TRUE(IsClean(Load({.compares = "aten::lt"}), kRule));
  EXPECT_FALSE(IsClean(Load({.compares = "aten::mul"}), kRule));
}

// A tensor with one number that the chain has not made is data.
TEST(ConstantRebuiltTest, IgnoresAChainScaledByData) {
  ComputeText text;
  for (int step = 0; step < 4; ++step) {
    text.Op("aten::linear", "(float[64,256],float[256,256])", {}, 500);
    text.Op("aten::arange", "(=\"800\",,,,)", {}, 10);
    text.Op("aten::mul", "(float[],float[800])", {}, 300);
    text.EndStep();
  }
  EXPECT_TRUE(IsClean(text.Analyzed(), kRule));
}

}  // namespace
}  // namespace stepscope::constants_test
