#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"

namespace stepscope::buffers_test {
namespace {

constexpr const char* kRule = "shifted-buffer";
constexpr const char* kDropOldest =
    "inputs=(float[4096,128],Scalar=\"0\",Scalar=\"32\","
    "Scalar=\"9223372036854775807\",Scalar=\"1\") aten::slice";
constexpr const char* kAppend =
    "inputs=((float[4064,128],float[32,128]),Scalar=\"0\") aten::cat";

// Steps of 10 ms, in which each of `ops` takes 1 ms.
Report Of(const std::vector<std::string>& ops, bool has_gradient = false) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    const std::string number = "sequence=" + std::to_string(step) + " ";
    for (const std::string& op : ops) {
      text.Op((has_gradient && op == ops.back() ? number : "") + op, 1'000);
    }
    if (has_gradient) {
      text.Op("kind=backward " + number + "CatBackward0", 1'000);
    }
    text.Op("aten::sort", 8'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(BuffersTest, FindsAQueueCopiedToDropItsOldestRows) {
  const Report report = Of({kDropOldest, kAppend});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 1 - 1 / 128.0, 0.01);
  EXPECT_NE(finding->evidence.find("of [4096, 128], of which 0.8 % are new"),
            std::string::npos)
      << finding->evidence;
}

TEST(BuffersTest, AllowsTheNewestRowsFirst) {
  EXPECT_FALSE(IsClean(
      Of({"inputs=(float[4096,128],Scalar=\"0\",Scalar=\"0\",Scalar=\"-32\","
          "Scalar=\"1\") aten::slice",
          "inputs=((float[32,128],float[4064,128]),Scalar=\"0\") aten::cat"}),
      kRule));
  EXPECT_FALSE(IsClean(Of({"inputs=(float[4096,128],Scalar=\"0\",Scalar=\"32\","
                           "Scalar=\"4064\") aten::narrow",
                           kAppend}),
                       kRule));
}

// torch.cat([queue, keys])[-4096:]
TEST(BuffersTest, FindsAQueueThatIsAppendedToBeforeItsOldestRowsAreCutOff) {
  const std::string append =
      "inputs=((float[4096,128],float[32,128]),Scalar=\"0\") aten::cat";
  const auto cut = [](const std::string& begin, const std::string& end) {
    return "inputs=(float[4128,128],Scalar=\"0\",Scalar=\"" + begin +
           "\",Scalar=\"" + end + "\",Scalar=\"1\") aten::slice";
  };
  const Report report = Of({append, cut("-4096", "9223372036854775807")});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1 - 32 / 4128.0, 0.01);
  EXPECT_NE(finding->evidence.find("of [4096, 128], of which 0.8 % are new"),
            std::string::npos)
      << finding->evidence;
  EXPECT_FALSE(IsClean(Of({append, cut("0", "4096")}), kRule));
  // Other rows than those that were added are cut off.
  EXPECT_TRUE(IsClean(Of({append, cut("100", "4128")}), kRule));
}

TEST(BuffersTest, IgnoresOtherTensors) {
  // The tensor has a gradient, so nothing may overwrite it.
  EXPECT_TRUE(IsClean(Of({kDropOldest, kAppend}, true), kRule));
  // The result is longer than the buffer.
  EXPECT_TRUE(IsClean(
      Of({kDropOldest,
          "inputs=((float[4064,128],float[64,128]),Scalar=\"0\") aten::cat"}),
      kRule));
  // Most of the result is new.
  EXPECT_TRUE(IsClean(
      Of({"inputs=(float[4096,128],Scalar=\"0\",Scalar=\"2049\","
          "Scalar=\"9223372036854775807\",Scalar=\"1\") aten::slice",
          "inputs=((float[2047,128],float[2049,128]),Scalar=\"0\") aten::cat"}),
      kRule));
  // Labels shifted to the next word.
  EXPECT_TRUE(IsClean(
      Of({"inputs=(float[32,128],Scalar=\"1\",Scalar=\"1\","
          "Scalar=\"9223372036854775807\",Scalar=\"1\") aten::slice",
          "inputs=((float[32,127],float[32,1]),Scalar=\"1\") aten::cat"}),
      kRule));
}

TEST(BuffersTest, FindsRowsWrittenIntoACopy) {
  const std::string arguments =
      "inputs=(float[4096,128],Scalar=\"0\",long int[32],float[32,128]) ";
  const Report report = Of({arguments + "aten::index_copy"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1 - 1 / 128.0, 0.01);
  EXPECT_NE(finding->fix_python.find("index_copy_ in place of index_copy"),
            std::string::npos)
      << finding->fix_python;
  EXPECT_TRUE(IsClean(Of({arguments + "aten::index_copy_"}), kRule));
  EXPECT_TRUE(IsClean(Of({arguments + "aten::index_copy"}, true), kRule));
}

}  // namespace
}  // namespace stepscope::buffers_test
