#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"
#include "support/cpu_text.h"

namespace stepscope::embeddings_test {
namespace {

constexpr char kRule[] = "dense-embedding-gradient";

struct Options {
  int lookups = 1'000;
  int rows = 10'000;
  bool sizes = true;
  bool numbers = true;  // the recording has the values of arguments
  std::string op = "aten::embedding_dense_backward";
  std::string by_frequency = "False";
  std::string mode = "0";     // of embedding bags
  int uses = 1;               // lookups in the table per step
  bool output_layer = false;  // one of the table's size
  bool tied = false;          // it shares the table's weights
  std::string update = "aten::add_";
  std::string first = "";    // argument of the update; the table if empty
  std::string updated = "";  // further arguments of the update
  int64_t update_us = 1'000;
  int64_t fill_us = 2'000;
  int64_t free_us = 500;
  std::string optimizer = "SGD";
};

// Time of a sparse SGD update of 1000 rows of 64 elements on a CPU: 0.03 ms
// plus 0.4 ns per element.
constexpr double kSparseMs = 0.03 + 0.0256;

// Steps with 10 ms of products and one table, whose gradient, update and
// release take `fill_us`, `update_us` and `free_us`.
Report Training(const Options& options) {
  const std::string rows = std::to_string(options.rows);
  const std::string table = "float[" + rows + ",64]";
  const std::string looked_up =
      "float[" + std::to_string(options.lookups) + ",64]";
  const std::string indices =
      "long int[" + std::to_string(options.lookups) + "]";
  const auto in = [&](const std::string& arguments) {
    return options.sizes ? "inputs=(" + arguments + ") " : std::string();
  };
  const auto value = [&](const std::string& text) {
    return options.numbers ? ",Scalar=\"" + text + "\"" : ",Scalar";
  };
  const bool bag = options.op == "aten::_embedding_bag_dense_backward";
  const std::string arguments =
      bag ? looked_up + "," + indices + "," + indices + ",long int[10]," +
                "long int[10]" + value(rows) + value(options.by_frequency) +
                value(options.mode)
          : looked_up + "," + indices + value(rows) + value("-1") +
                value(options.by_frequency);
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    text.Op("sequence=" + std::to_string(i) + " " + in(table + "," + indices) +
                "aten::embedding",
            100);
    text.Op("aten::mm", 10'000);
    text.Begin();
    text.Pass(options.free_us);
    text.EndRange("kind=optimizer Optimizer.zero_grad#SGD.zero_grad");
    if (options.output_layer || options.tied) {
      text.Op("kind=backward TBackward0", 10);
    }
    for (int use = 0; use < options.uses; ++use) {
      const bool adds = use > 0 || options.tied;
      text.Nested("kind=backward sequence=" + std::to_string(i) + " " +
                      in(looked_up) +
                      "autograd::engine::evaluate_function: EmbeddingBackward0",
                  options.fill_us, in(arguments) + options.op, options.fill_us);
      if (adds) {
        text.Nested("kind=backward autograd::engine::evaluate_function: X", 300,
                    in(table + "," + table) + "aten::add_", 300);
      }
    }
    for (int k = 0; k < (options.output_layer ? 2 : 1); ++k) {
      text.Op("kind=backward " + in(table) + "torch::autograd::AccumulateGrad",
              10);
    }
    text.Begin();
    text.Op(
        in((options.first.empty() ? table : options.first) + "," +
           (options.first.empty() ? table : options.first) + options.updated) +
            options.update,
        options.update_us);
    text.EndRange("kind=optimizer Optimizer.step#" + options.optimizer +
                  ".step");
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(DenseEmbeddingGradientTest, CountsBackwardUpdateAndRelease) {
  const Report report = Training({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 2 + 0.01 + 1 + 0.5 - kSparseMs, 0.01);
  EXPECT_NE(finding->evidence.find(
                "[10000, 64] (2.6 MB), although a step looks up at most 1000 "
                "of its 10000 rows (10 %)"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("0.50 ms to free them"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("SparseAdam"), std::string::npos);
}

// Without sizes, the time that filling a gradient takes tells that its table is
// large.
TEST(DenseEmbeddingGradientTest, TellsLargeTablesByTheTimeOfFillingThem) {
  const auto of = [](int64_t fill_us, const std::string& sums = "") {
    ComputeText text;
    for (int i = 0; i < 4; ++i) {
      const std::string number = "sequence=" + std::to_string(i);
      text.Op("aten::embedding", "", {}, 100, number);
      text.Op("aten::mm", "", {}, 10'000);
      text.Begin();
      text.Begin();
      text.Op("aten::zero_", "", {}, fill_us);
      text.Pass(1'000);
      text.End("aten::embedding_dense_backward");
      text.End("EmbeddingBackward0", "", 0, "kind=backward " + number);
      if (!sums.empty()) {
        text.Begin();
        text.Pass(1);
        text.Op(sums, "", {}, 2'000);
        text.End("autograd::engine::evaluate_function: X", "", 0,
                 "kind=backward");
      }
      text.Begin();
      text.Op("aten::add_", "", {}, 10);
      text.Op("aten::add_", "", {}, 3'000);
      text.EndRange("Optimizer.step#SGD.step", "optimizer");
      text.EndStep();
    }
    return text.Analyzed();
  };
  const Report report = of(2'000);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Of two updates, the table's is the longer one.
  EXPECT_NEAR(finding->gain.expected_ms, 2 + 1 + 3, 0.05);
  EXPECT_NE(finding->evidence.find("1 table per step"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(WhySkipped(of(400), kRule), "");
  // The table may be tied to an output layer.
  EXPECT_NE(WhySkipped(of(2'000, "aten::add"), kRule), "");
}

TEST(DenseEmbeddingGradientTest, NeedsTenTimesAsManyRowsAsLookupsOnACpu) {
  EXPECT_TRUE(Promises(Training({.lookups = 1'000}), kRule));
  EXPECT_TRUE(IsClean(Training({.lookups = 1'001}), kRule));
}

TEST(DenseEmbeddingGradientTest, SeesEmbeddingBags) {
  const std::string bag = "aten::_embedding_bag_dense_backward";
  EXPECT_TRUE(Promises(Training({.op = bag}), kRule));
  EXPECT_TRUE(IsClean(Training({.op = bag, .mode = "2"}), kRule));
}

TEST(DenseEmbeddingGradientTest, TakesTheTableOfTheForwardOp) {
  EXPECT_TRUE(Promises(Training({.numbers = false}), kRule));
}

TEST(DenseEmbeddingGradientTest, SparseGradientsHaveNoFrequencies) {
  EXPECT_TRUE(IsClean(Training({.by_frequency = "True"}), kRule));
}

TEST(DenseEmbeddingGradientTest, CountsBothUsesOfATable) {
  const Report report = Training({.lookups = 500, .uses = 2});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  // Two gradients and their sum.
  EXPECT_NEAR(finding->gain.expected_ms, 4 + 0.3 + 0.01 + 1 + 0.5 - kSparseMs,
              0.01);
}

// The output layer's gradient is dense and is added to the table's gradient.
TEST(DenseEmbeddingGradientTest, StaysSilentOnTiedWeights) {
  EXPECT_TRUE(IsClean(Training({.tied = true}), kRule));
}

TEST(DenseEmbeddingGradientTest, LeavesTheShareOfAnOutputLayerOfTheSameSize) {
  const Report report = Training({.output_layer = true});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2 + 0.01 + 0.5 + 0.25 - kSparseMs,
              0.01);
}

TEST(DenseEmbeddingGradientTest, LeavesTheOtherParametersOfAFusedUpdate) {
  const Report report =
      Training({.update = "aten::_fused_sgd_",
                .updated = ",TensorList(float[10000,64],float[20000,64])"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  // The fused update handles 5 tables' worth of elements; 3 of them remain.
  EXPECT_NEAR(finding->gain.expected_ms, 2 + 0.01 + 0.6 + 0.5 - kSparseMs,
              0.01);
}

// PyTorch records no sizes for lists of more than 30 tensors, so the rule uses
// the table's share of all gradients: one half here.
TEST(DenseEmbeddingGradientTest, UsesTheShareOfGradientsForLongLists) {
  const Report report = Training({.output_layer = true,
                                  .update = "aten::_fused_sgd_",
                                  .first = "TensorList"});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 2 + 0.01 + 0.5 + 0.25 - kSparseMs,
              0.01);
}

TEST(DenseEmbeddingGradientTest, NeedsOnePercentOfTheStep) {
  // The gains are 0.095 and 0.104 ms, the step takes 10.3 ms.
  EXPECT_TRUE(IsClean(Training({.update_us = 10, .fill_us = 130, .free_us = 0}),
                      kRule));
  EXPECT_NE(
      Find(Training({.update_us = 10, .fill_us = 140, .free_us = 0}), kRule),
      nullptr);
}

// A fused Adam updates 10000 rows of 64 elements in 0.3 ms, but SparseAdam
// needs 0.5 ms for only 1000 rows.
TEST(DenseEmbeddingGradientTest, SubtractsTheTimeOfSparseAdam) {
  const Options small = {.update_us = 300, .fill_us = 150, .free_us = 0};
  Options adam = small;
  adam.optimizer = "Adam";
  EXPECT_TRUE(Promises(Training(small), kRule));
  EXPECT_TRUE(IsClean(Training(adam), kRule));
}

TEST(DenseEmbeddingGradientTest, NeedsSizes) {
  EXPECT_NE(WhySkipped(Training({.sizes = false}), kRule), "");
}

// A table on a GPU that is looked up in a step: `gradient_us` to fill and write
// its gradient, and a fused update of `update_us` that handles the table and
// another parameter with as many elements.
struct OnGpu {
  int64_t lookups = 100, rows = 10'000;
  double gradient_us = 4'000, update_us = 2'000;
  double unscale_us = 0;  // of a gradient scaler, over the same gradients
  std::string device = "NVIDIA A100-SXM4-80GB";
};

Report OnAGpu(const OnGpu& how) {
  const std::string table = "float[" + std::to_string(how.rows) + ",64]";
  const std::string lookups = std::to_string(how.lookups);
  const std::string gradients = "(TensorList(" + table + ",float[" +
                                std::to_string(64 * how.rows) + "]))";
  ComputeText text(how.device);
  for (int i = 0; i < 4; ++i) {
    text.Op("aten::mm", "(float[64,64],float[64,64])", {{"gemm", 5'000}});
    text.Begin();
    text.Op("aten::embedding_dense_backward",
            "(float[" + lookups + ",64],long int[" + lookups + "],Scalar=\"" +
                std::to_string(how.rows) + "\")",
            {{"fill", how.gradient_us / 2},
             {"embedding_backward", how.gradient_us / 2}});
    text.End("autograd::engine::evaluate_function: EmbeddingBackward0", "", 0,
             "kind=backward");
    text.Op("torch::autograd::AccumulateGrad", "(" + table + ")", {}, 10,
            "kind=backward");
    if (how.unscale_us > 0) {
      text.Op("aten::_amp_foreach_non_finite_check_and_unscale_", gradients,
              {{"multi_tensor_apply", how.unscale_us}});
    }
    text.Begin();
    text.Op("aten::_fused_adamw_", gradients,
            {{"multi_tensor_apply", how.update_us}});
    text.EndRange("Optimizer.step#AdamW.step", "optimizer");
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(DenseEmbeddingGradientTest, CountsDeviceTimeOnAGpu) {
  const Report report = OnAGpu({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4 + 1, 0.01);
  EXPECT_NE(finding->fix_python.find("TorchRec"), std::string::npos);
}

TEST(DenseEmbeddingGradientTest, CountsTheGradientScalersPass) {
  const Report report = OnAGpu({.unscale_us = 600});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4 + 1 + 0.3, 0.01);
}

// 250,000 lookups are 64 MB, which 80 % of 2039 GB/s move in 0.039 ms.
// SparseAdam needs at most 45 such passes, 1.77 ms, and at least 21, where two
// fifths of the rows differ.
const OnGpu kManyLookups = {.lookups = 250'000, .rows = 1'000'000};
constexpr double kPassMs = 0.0392;

TEST(DenseEmbeddingGradientTest, SeesManyLookupsIfTheDenseUpdateIsSlow) {
  const Report report = OnAGpu(kManyLookups);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4 + 1 - 21 * kPassMs, 0.01);
  EXPECT_NE(finding->evidence.find("at most 250000 of its 1000000 rows (25 %)"),
            std::string::npos)
      << finding->evidence;
}

// A fused update may move less than a sparse one, which is not fused. The gains
// are 0.085 and 0.11 ms if all rows differ.
TEST(DenseEmbeddingGradientTest, LeavesManyLookupsIfSparseOnesMayBeSlower) {
  OnGpu how = kManyLookups;
  how.gradient_us = 1'350;
  how.update_us = 1'000;
  EXPECT_TRUE(IsClean(OnAGpu(how), kRule));
  how.gradient_us = 1'375;
  EXPECT_TRUE(Promises(OnAGpu(how), kRule));
}

TEST(DenseEmbeddingGradientTest, NeedsTwoRowsPerLookupOnAGpu) {
  OnGpu how = kManyLookups;
  how.lookups = 500'000;
  EXPECT_TRUE(Promises(OnAGpu(how), kRule));
  how.lookups = 500'001;
  EXPECT_TRUE(IsClean(OnAGpu(how), kRule));
}

TEST(DenseEmbeddingGradientTest, NeedsTenRowsPerLookupOnAnUnknownGpu) {
  OnGpu how = kManyLookups;
  how.device = "Unknown";
  EXPECT_TRUE(IsClean(OnAGpu(how), kRule));
  how.lookups = 100'000;
  const Report report = OnAGpu(how);
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4 + 1, 0.01);
}

// Recordings with the sizes of forward ops only.
struct Unsized {
  std::string arguments = "=\"-1\",=\"False\"";  // of aten::embedding
  std::string weight = "float[10000,64]";        // of the layer after the table
  bool transposed = false;                       // by an op without sizes
  bool tied = false;     // it shares the table's weights
  bool reduced = false;  // each gradient is copied and all-reduced
};

// Kernels of 4 ms make the table's gradient, one of 2 ms updates the table and
// the weight of the layer. A gradient is copied in 1 ms, and all-reduced in
// another 1 ms.
Report WithoutSizes(const Unsized& how) {
  ComputeText text;
  const auto node = [&](const std::string& name, int sequence,
                        const std::vector<KernelLine>& kernels, bool adds) {
    text.Begin();
    text.Pass(1);
    text.Begin();
    text.Pass(1);
    text.Op("aten::" + name + "_dense_backward", "", kernels);
    text.End(name + "Backward0", "", 0,
             "kind=backward sequence=" + std::to_string(sequence));
    if (adds) text.Op("aten::add_", "", {});
    text.End("autograd::engine::evaluate_function: " + name + "Backward0", "",
             0, "kind=backward sequence=" + std::to_string(sequence));
  };
  const auto keep = [&] {
    text.Begin();
    text.Pass(1);
    text.Op("torch::autograd::AccumulateGrad", "", {}, 10, "kind=backward");
    if (how.reduced) {
      text.Op("torch::distributed::reducer::mul_out", "", {{"mul", 1'000}});
      text.Op("c10d::allreduce_", "",
              {{"ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1'000}});
    }
    text.End(
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
        "", 0, "kind=backward");
  };
  for (int i = 0; i < 4; ++i) {
    text.Op("aten::embedding",
            "(float[10000,64],long int[100]," + how.arguments + ")",
            {{"lookup", 10}}, 10, "sequence=" + std::to_string(3 * i));
    if (how.transposed) {
      text.Op("aten::t", "", {}, 10, "sequence=" + std::to_string(3 * i + 1));
    }
    text.Op("aten::linear",
            how.weight.empty() ? "" : "(float[100,64]," + how.weight + ")",
            {{"gemm", 5'000}}, 10, "sequence=" + std::to_string(3 * i + 2));
    node("linear", 3 * i + 2, {{"gemm", 1'000}}, false);
    if (how.transposed) node("t", 3 * i + 1, {}, false);
    if (!how.tied) keep();
    node("embedding", 3 * i, {{"fill", 3'000}, {"embedding_backward", 1'000}},
         how.tied);
    keep();
    text.Begin();
    text.Op("aten::_foreach_add_", "", {{"multi_tensor_apply", 2'000}});
    text.EndRange("Optimizer.step#SGD.step", "optimizer");
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(DenseEmbeddingGradientTest, TakesTheTableOfTheForwardOpWithoutSizes) {
  const Report report = WithoutSizes({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  // The table is half of the parameters.
  EXPECT_NEAR(finding->gain.expected_ms, 4 + 1, 0.01);
  EXPECT_NE(
      finding->evidence.find("[10000, 64] (2.6 MB), although a step looks "
                             "up at most 100 of its 10000 rows"),
      std::string::npos)
      << finding->evidence;
  EXPECT_NEAR(Find(WithoutSizes({.weight = "float[30000,64]"}), kRule)
                  ->gain.expected_ms,
              4 + 0.5, 0.01);
}

TEST(DenseEmbeddingGradientTest, SeesTheWeightBehindAView) {
  const Report report = WithoutSizes({.transposed = true});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4 + 1, 0.01);
}

// If the other parameters may have any size, the update may be theirs.
TEST(DenseEmbeddingGradientTest, LeavesAnUpdateOfUnknownParameters) {
  const Report report = WithoutSizes({.weight = ""});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4, 0.01);
}

TEST(DenseEmbeddingGradientTest, StaysSilentWithoutSizesAsWithThem) {
  EXPECT_TRUE(IsClean(WithoutSizes({.tied = true}), kRule));
  EXPECT_TRUE(IsClean(WithoutSizes({.arguments = "=\"-1\",=\"True\""}), kRule));
}

// Each gradient is a bucket of its own.
TEST(DenseEmbeddingGradientTest, CountsTheCopyAndTheAllReduceOfTheGradient) {
  const Report report = WithoutSizes({.reduced = true});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 4 + 1 + 2, 0.05);
  EXPECT_NE(finding->evidence.find("to all-reduce them"), std::string::npos)
      << finding->evidence;
}

}  // namespace
}  // namespace stepscope::embeddings_test
