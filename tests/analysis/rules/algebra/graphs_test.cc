#include "analysis/rules/rule_testing.h"
#include "support/compute_text.h"

namespace stepscope::graphs_test {
namespace {

constexpr char kRule[] = "gather-scatter";

// A layer of a graph network on an A100: 1,000,000 edges between 100,000 nodes
// with 64 floats each.
struct Layer {
  std::string gather = "aten::index_select";
  std::string gathered = "(float[100000,64],Scalar=\"0\",long int[1000000])";
  // An op on the rows of the edges, of 500 us. `weight_trains`: its node
  // computes the gradient of the weights, too.
  std::string between = "";
  std::string between_inputs = "";
  bool weight_trains = false;
  std::string scatter = "aten::scatter_add_";
  std::string scattered =
      "(float[100000,64],Scalar=\"0\",long int[1000000,64],float[1000000,64])";
  std::string after = "aten::linear";  // an op of 1 ms
  std::string after_inputs = "(float[100000,64],float[64,64],float[64])";
  bool sizes = true;
  bool trains = true;
  double us = 1'000;  // of the gather; the scatter takes twice as long
  int layers = 2;
  // What adds up the gradient of the gather.
  std::string gradient = "aten::index_add_", gradient_kernel = "index_add";
};

// Steps of two layers' kernels: gather, zeros, scatter and, in
// backward, a gather, zeros and a scatter that take as long.
Report Training(const Layer& layer) {
  ComputeText text;
  int64_t number = 0;
  const auto in = [&](const std::string& inputs) {
    return layer.sizes ? inputs : "";
  };
  for (int step = 0; step < 4; ++step) {
    std::vector<std::string> sequences;
    const auto op = [&](const std::string& name, const std::string& inputs,
                        const std::string& kernel, double us) {
      sequences.push_back("sequence=" + std::to_string(++number));
      text.Op(name, in(inputs), {{kernel, us}}, 10,
              layer.trains ? sequences.back() : "");
    };
    for (int i = 0; i < layer.layers; ++i) {
      op(layer.gather, layer.gathered, "indexSelectLargeIndex", layer.us);
      const std::string gather = sequences.back();
      std::string between;
      if (!layer.between.empty()) {
        op(layer.between, layer.between_inputs, "between", 500);
        between = sequences.back();
      }
      text.Op("aten::new_zeros", in("(float[1000000,64],Scalar)"),
              {{"FillFunctor", layer.us / 10}});
      std::string scatter;
      if (!layer.scatter.empty()) {
        op(layer.scatter, layer.scattered, "scatter_add", 2 * layer.us);
        scatter = sequences.back();
      }
      text.Op(layer.after, in(layer.after_inputs), {{"gemm", 1'000}});
      if (!layer.trains) continue;
      const auto node = [&](const std::string& name, const std::string& of,
                            const std::vector<KernelLine>& kernels) {
        text.Begin();
        text.Pass(1);
        for (const KernelLine& kernel : kernels) {
          text.Op(kernel.fields, "", {{kernel.name, kernel.us}});
        }
        text.End(name, "", 0, "kind=backward " + of);
      };
      if (!scatter.empty()) {
        node("ScatterAddBackward0", scatter,
             {{"gather", layer.us, "aten::gather"}});
      }
      if (!between.empty()) {
        std::vector<KernelLine> kernels = {{"mul", 500, "aten::mul"}};
        if (layer.weight_trains) kernels.push_back({"mul", 500, "aten::mul"});
        node("MulBackward0", between, kernels);
      }
      node("IndexSelectBackward0", gather,
           {{"FillFunctor", layer.us / 10, "aten::new_zeros"},
            {layer.gradient_kernel, 2 * layer.us, layer.gradient}});
    }
    text.EndStep();
  }
  return text.Analyzed();
}

// The sizes of the layer, with `edges` edges.
Layer WithEdges(int64_t edges) {
  const std::string count = std::to_string(edges);
  return {.gathered = "(float[100000,64],Scalar=\"0\",long int[" + count + "])",
          .scattered = "(float[100000,64],Scalar=\"0\",long int[" + count +
                       ",64],float[" + count + ",64])"};
}

Layer Weighted(const std::string& weights, bool trains = false) {
  return {.between = "aten::mul",
          .between_inputs = "(float[1000000,64]," + weights + ")",
          .weight_trains = trains};
}

TEST(GatherScatterTest, PredictsWhatAProductMovesAtTheRateOfTheGather) {
  const Report report = Training({});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  // Per edge the gather reads and writes 256 bytes, and reads 8. The product
  // reads 256, 8 of the index and 4 of the value, and writes 25.6.
  const double left = (256 + 12 + 25.6) / (2 * 256 + 8);
  // Two layers, forward and backward: 1 ms of a gather, 0.1 of zeros, 2 of
  // scatter.
  EXPECT_NEAR(finding->gain.expected_ms, 4 * (3.1 - left), 0.02);
  EXPECT_NE(finding->evidence.find("1000000 rows (256 MB) from 100000 nodes"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("2 times per step, and backward"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->evidence.find("It moves 5.2 GB"), std::string::npos)
      << finding->evidence;
}

TEST(GatherScatterTest, SeesInference) {
  const Report report = Training({.trains = false});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->evidence.find("backward"), std::string::npos)
      << finding->evidence;
}

TEST(GatherScatterTest, SeesTheOtherOpsThatGatherAndSum) {
  Layer layer;
  layer.gather = "aten::index";
  layer.gathered = "(float[100000,64],(long int[1000000]))";
  layer.scatter = "aten::index_add";
  layer.scattered =
      "(float[100000,64],Scalar=\"0\",long int[1000000],float[1000000,64],"
      "Scalar=\"1\")";
  EXPECT_NE(Find(Training(layer), kRule), nullptr);
  layer.gather = "aten::gather";
  layer.gathered = "(float[100000,64],Scalar=\"0\",long int[1000000,64])";
  layer.scatter = "torch_scatter::segment_sum_csr";
  layer.scattered = "(float[1000000,64],long int[100001])";
  EXPECT_NE(Find(Training(layer), kRule), nullptr);
  layer.scatter = "aten::index_put_";
  layer.scattered =
      "(float[100000,64],(long int[1000000]),float[1000000,64],"
      "Scalar=\"True\")";
  EXPECT_NE(Find(Training(layer), kRule), nullptr);
}

// The product needs no x[index], so nothing is left to gain by index_select.
TEST(GatherScatterTest, OwnsTheSortedGradientOfTheGather) {
  const Report report =
      Training({.gather = "aten::index",
                .gathered = "(float[100000,64],(long int[1000000]))",
                .gradient = "aten::_index_put_impl_",
                .gradient_kernel = "indexing_backward_kernel"});
  EXPECT_NE(Find(report, kRule), nullptr);
  EXPECT_EQ(Find(report, "sorted-index-gradient"), nullptr);
  ASSERT_EQ(report.superseded.size(), 1);
  EXPECT_TRUE(report.superseded.front().starts_with("sorted-index-gradient"));
}

// index_put without accumulate=True sums nothing, and index_select of columns
// takes no rows.
TEST(GatherScatterTest, IgnoresOpsThatSumNothingOrTakeNoRows) {
  Layer layer;
  layer.scatter = "aten::index_put_";
  layer.scattered =
      "(float[100000,64],(long int[1000000]),float[1000000,64],"
      "Scalar=\"False\")";
  EXPECT_TRUE(IsClean(Training(layer), kRule));
  EXPECT_TRUE(IsClean(
      Training(
          {.gathered = "(float[100000,64],Scalar=\"1\",long int[1000000])"}),
      kRule));
}

TEST(GatherScatterTest, CountsTheProductsWithOneWeightPerEdge) {
  for (const char* weights : {"float[1000000,1]", "float[]"}) {
    const Report report = Training(Weighted(weights));
    const Finding* finding = Find(report, kRule);
    ASSERT_NE(finding, nullptr) << weights;
    EXPECT_NEAR(finding->gain.expected_ms, 4 * (3.6 - 293.6 / 520), 0.02);
    EXPECT_NE(finding->evidence.find("multiplied by a weight"),
              std::string::npos);
  }
}

// The gradient of a weight is the product of two rows per edge, which no sparse
// product makes: attention, or a trained weight.
TEST(GatherScatterTest, LeavesTrainedWeightsAlone) {
  EXPECT_TRUE(IsClean(Training(Weighted("float[1000000,1]", true)), kRule));
}

// Continuous filters, as in SchNet: a matrix has one number per edge.
TEST(GatherScatterTest, LeavesWeightsPerColumnAlone) {
  EXPECT_TRUE(IsClean(Training(Weighted("float[1000000,64]")), kRule));
}

// Messages made by a layer or by an activation depend on more than a product,
// as do rows that experts have computed on.
TEST(GatherScatterTest, LeavesMessagesAloneThatOtherOpsMake) {
  Layer layer = {
      .between = "aten::linear",
      .between_inputs = "(float[1000000,64],float[64,64],float[64])"};
  EXPECT_TRUE(IsClean(Training(layer), kRule));
  layer.sizes = false;
  EXPECT_TRUE(IsClean(Training(layer), kRule));
  layer = {.between = "aten::relu", .between_inputs = "(float[1000000,64])"};
  EXPECT_TRUE(IsClean(Training(layer), kRule));
  layer = {.between = "aten::sub",  // the difference of both ends
           .between_inputs = "(float[1000000,64],float[1000000,64])"};
  EXPECT_TRUE(IsClean(Training(layer), kRule));
}

// Of two gathers of one size, sizes do not tell whose rows are summed up where.
TEST(GatherScatterTest, LeavesTwoGathersBeforeTwoSumsAlone) {
  Layer layer;
  layer.between = layer.gather;
  layer.between_inputs = layer.gathered;
  layer.after = layer.scatter;
  layer.after_inputs = layer.scattered;
  EXPECT_TRUE(IsClean(Training(layer), kRule));
}

// A second sum of the same messages (as their maximum) needs their rows.
TEST(GatherScatterTest, LeavesMessagesAloneThatAreTakenAgain) {
  EXPECT_TRUE(
      IsClean(Training({.after = "aten::scatter_reduce_",
                        .after_inputs = "(float[100000,64],Scalar=\"0\",long "
                                        "int[1000000,64],float[1000000,64])"}),
              kRule));
}

TEST(GatherScatterTest, NeedsTwoEdgesPerSum) {
  EXPECT_NE(Find(Training(WithEdges(200'000)), kRule), nullptr);
  EXPECT_TRUE(IsClean(Training(WithEdges(199'999)), kRule));
}

// As many rows as there are: they are only put in another order, and sizes do
// not tell them from the features.
TEST(GatherScatterTest, LeavesPermutationsAlone) {
  EXPECT_TRUE(IsClean(
      Training(
          {.gathered = "(float[1000000,64],Scalar=\"0\",long int[1000000])"}),
      kRule));
}

TEST(GatherScatterTest, LeavesLookupsAlone) {
  EXPECT_TRUE(IsClean(Training({.scatter = ""}), kRule));
}

TEST(GatherScatterTest, LeavesSmallGraphsAlone) {
  EXPECT_TRUE(IsClean(Training({.us = 5}), kRule));
}

TEST(GatherScatterTest, TakesAProductForAsLongAsTheGatherWithoutSizes) {
  const Report report = Training({.sizes = false});
  const Finding* finding = Find(report, kRule);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NEAR(finding->gain.expected_ms, 4 * 2.1, 0.02);
  EXPECT_EQ(finding->evidence.find("It moves"), std::string::npos);
}

// Without sizes, one pass may be a lookup whose rows are put in groups, and a
// weight without a node may be anything.
TEST(GatherScatterTest, NeedsMoreSignsWithoutSizes) {
  EXPECT_TRUE(IsClean(Training({.sizes = false, .layers = 1}), kRule));
  Layer layer = {.between = "aten::mul", .sizes = false};
  EXPECT_NE(Find(Training(layer), kRule), nullptr);
  layer.weight_trains = true;
  EXPECT_TRUE(IsClean(Training(layer), kRule));
  layer = {.between = "aten::mul", .sizes = false, .trains = false};
  EXPECT_TRUE(IsClean(Training(layer), kRule));
}

}  // namespace
}  // namespace stepscope::graphs_test
