#include <gtest/gtest.h>
#include <stepscope/op_cost.h>
#include <stepscope/trace_builder.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope::op_cost_test {
namespace {

struct Tensor {
  const char* type = "";
  std::vector<int64_t> dims = {};
  const char* concrete = "";
};
using Call = std::pair<const char*, std::vector<Tensor>>;

// Nests each call in the one before it. Returns the innermost call's cost.
OpCost Nested(const std::vector<Call>& calls) {
  TraceBuilder builder;
  const RowId thread = builder.ThreadRow(1, 2);
  int64_t begin = 0, end = 1000;
  for (const auto& [name, tensors] : calls) {
    Op op;
    op.begin_ns = begin += 10;
    op.end_ns = end -= 10;
    op.name = builder.Intern(name);
    op.thread = thread;
    OpInputs inputs;
    for (const Tensor& tensor : tensors) {
      inputs.arguments.push_back({.type = builder.Intern(tensor.type),
                                  .dims = tensor.dims,
                                  .concrete = builder.Intern(tensor.concrete)});
    }
    if (!tensors.empty()) op.inputs = builder.InternInputs(inputs);
    builder.Add(op);
  }
  const Trace trace = builder.Build();
  return CostOf(trace, static_cast<RowId>(calls.size() - 1));
}
OpCost Of(const char* op, const std::vector<Tensor>& tensors) {
  return Nested({{op, tensors}});
}

TEST(OpCostTest, CountsMatrixProducts) {
  const OpCost mm = Of("aten::mm", {{"float", {3, 5}}, {"float", {5, 7}}});
  EXPECT_EQ(mm.kind, KernelClass::kMatmul);
  EXPECT_EQ(mm.flops, 2 * 3 * 5 * 7);
  EXPECT_EQ(mm.bytes, 4 * (3 * 5 + 5 * 7 + 3 * 7));
  EXPECT_EQ(mm.matmul.m, 3);
  EXPECT_EQ(mm.matmul.k, 5);
  EXPECT_EQ(mm.matmul.n, 7);
  EXPECT_EQ(
      Of("aten::addmm",
         {{"c10::Half", {7}}, {"c10::Half", {3, 5}}, {"c10::Half", {5, 7}}})
          .flops,
      2 * 3 * 5 * 7);
  const OpCost bmm = Of("aten::bmm", {{"c10::BFloat16", {2, 3, 5}},
                                      {"c10::BFloat16", {2, 5, 7}}});
  EXPECT_EQ(bmm.flops, 2 * 2 * 3 * 5 * 7);
  EXPECT_EQ(bmm.matmul.batch, 2);
  EXPECT_EQ(bmm.precision, Precision::kBf16);
  EXPECT_EQ(
      Of("aten::baddbmm",
         {{"float", {2, 3, 7}}, {"float", {2, 3, 5}}, {"float", {2, 5, 7}}})
          .flops,
      2 * 2 * 3 * 5 * 7);
  EXPECT_EQ(Of("aten::linear",
               {{"float", {2, 3, 5}}, {"float", {7, 5}}, {"float", {7}}})
                .flops,
            2 * 2 * 3 * 5 * 7);
}

TEST(OpCostTest, CountsAConvolutionByItsResult) {
  // ResNet's stem: 112 x 112 positions and 64 filters of 3 x 7 x 7.
  const double flops = 2.0 * 32 * 64 * 112 * 112 * 3 * 7 * 7;
  const std::vector<Tensor> inputs = {{"float", {32, 3, 224, 224}},
                                      {"float", {64, 3, 7, 7}},
                                      {},
                                      {"ScalarList", {}, "[2, 2]"},
                                      {"ScalarList", {}, "[3, 3]"},
                                      {"ScalarList", {}, "[1, 1]"},
                                      {"Scalar", {}, "False"},
                                      {"ScalarList", {}, "[0, 0]"},
                                      {"Scalar", {}, "1"}};
  EXPECT_EQ(Of("aten::convolution", inputs).flops, flops);
  // An operator of a backend without shapes takes its caller's shapes.
  EXPECT_EQ(
      Nested({{"aten::convolution", inputs}, {"aten::cudnn_convolution", {}}})
          .flops,
      flops);
  // Backends have their own order of arguments.
  EXPECT_EQ(Of("aten::miopen_convolution", {{"float", {32, 3, 224, 224}},
                                            {"float", {64, 3, 7, 7}},
                                            {},
                                            {"ScalarList", {}, "[3, 3]"},
                                            {"ScalarList", {}, "[2, 2]"},
                                            {"ScalarList", {}, "[1, 1]"},
                                            {"Scalar", {}, "1"}})
                .flops,
            flops);
  EXPECT_EQ(Of("aten::cudnn_convolution", {{"float", {32, 3, 224, 224}},
                                           {"float", {64, 3, 7, 7}},
                                           {"ScalarList", {}, "[3, 3]"},
                                           {"ScalarList", {}, "[2, 2]"},
                                           {"ScalarList", {}, "[1, 1]"},
                                           {"Scalar", {}, "1"}})
                .flops,
            flops);
}

// A transposed convolution's weight is [in, out / groups, ...].
TEST(OpCostTest, CountsTransposedConvolutions) {
  const double flops = 2.0 * 8 * 512 * 14 * 14 * 256 * 2 * 2;
  const auto input = [](const char* transposed, const char* groups) {
    return std::vector<Tensor>{{"float", {8, 512, 14, 14}},
                               {"float", {512, 256, 2, 2}},
                               {},
                               {"ScalarList", {}, "[2, 2]"},
                               {"ScalarList", {}, "[0, 0]"},
                               {"ScalarList", {}, "[1, 1]"},
                               {"Scalar", {}, transposed},
                               {"ScalarList", {}, "[0, 0]"},
                               {"Scalar", {}, groups}};
  };
  OpCost cost = Of("aten::convolution", input("True", "1"));
  EXPECT_EQ(cost.flops, flops);
  EXPECT_TRUE(SuitsTensorCores(cost));  // 512 channels to 256 in one group
  EXPECT_FALSE(SuitsTensorCores(Of("aten::convolution", input("True", "4"))));

  const std::vector<Tensor> backend = {
      {"float", {8, 512, 14, 14}},  {"float", {512, 256, 2, 2}},
      {"ScalarList", {}, "[0, 0]"}, {"ScalarList", {}, "[0, 0]"},
      {"ScalarList", {}, "[2, 2]"}, {"ScalarList", {}, "[1, 1]"},
      {"Scalar", {}, "1"}};
  cost = Of("aten::cudnn_convolution_transpose", backend);
  EXPECT_EQ(cost.flops, flops);
  EXPECT_TRUE(SuitsTensorCores(cost));

  const std::vector<Tensor> backward = {
      {"float", {8, 256, 28, 28}},
      {"float", {8, 512, 14, 14}},
      {"float", {512, 256, 2, 2}},
      {"ScalarList", {}, "[256]"},
      {"ScalarList", {}, "[2, 2]"},
      {"ScalarList", {}, "[0, 0]"},
      {"ScalarList", {}, "[1, 1]"},
      {"Scalar", {}, "True"},
      {"ScalarList", {}, "[0, 0]"},
      {"Scalar", {}, "1"},
      {"ScalarList", {}, "[True, True, True]"}};
  cost = Of("aten::convolution_backward", backward);
  EXPECT_EQ(cost.flops, 2 * flops);
  EXPECT_TRUE(SuitsTensorCores(cost));
}

TEST(OpCostTest, AConvolutionOfUnknownStrideIsUnknown) {
  const OpCost cost = Of("aten::convolution", {{"float", {32, 3, 224, 224}},
                                               {"float", {64, 3, 7, 7}}});
  EXPECT_EQ(cost.flops, -1);
  EXPECT_EQ(cost.precision, Precision::kFp32);
}

TEST(OpCostTest, CountsTheTwoSidesOfAConvolutionBackward) {
  const double one = 2.0 * 32 * 64 * 56 * 56 * 64 * 3 * 3;
  std::vector<Tensor> inputs = {{"float", {32, 64, 56, 56}},
                                {"float", {32, 64, 56, 56}},
                                {"float", {64, 64, 3, 3}}};
  EXPECT_EQ(Of("aten::convolution_backward", inputs).flops, 2 * one);
  EXPECT_EQ(Of("aten::cudnn_convolution_backward", inputs).flops, 2 * one);
  EXPECT_EQ(Nested({{"aten::cudnn_convolution_backward", inputs},
                    {"aten::cudnn_convolution_backward_weight", {}}})
                .flops,
            one);
  inputs.resize(10);
  inputs.push_back({"ScalarList", {}, "[False, True, False]"});
  EXPECT_EQ(Of("aten::convolution_backward", inputs).flops, one);
}

TEST(OpCostTest, CountsAttention) {
  const Tensor q = {"c10::BFloat16", {2, 8, 128, 64}};
  const Tensor k = {"c10::BFloat16", {2, 8, 256, 64}};
  const double flops = 4.0 * 2 * 8 * 128 * 256 * 64;
  EXPECT_EQ(Of("aten::_scaled_dot_product_flash_attention", {q, k, k}).flops,
            flops);
  EXPECT_EQ(Of("aten::_scaled_dot_product_flash_attention",
               {q, k, k, {"Scalar", {}, "0."}, {"Scalar", {}, "True"}})
                .flops,
            flops / 2);
  EXPECT_EQ(
      Of("aten::_scaled_dot_product_flash_attention_backward", {q, q, k, k})
          .flops,
      2.5 * flops);
  // The kernel's own operator has the length before the heads.
  EXPECT_EQ(
      Of("aten::_flash_attention_forward", {{"c10::BFloat16", {2, 128, 8, 64}},
                                            {"c10::BFloat16", {2, 256, 8, 64}},
                                            {"c10::BFloat16", {2, 256, 8, 64}}})
          .flops,
      flops);
}

TEST(OpCostTest, CountsWhatElementwiseOpsMove) {
  const OpCost add = Of("aten::add_", {{"float", {10, 10}}, {"float", {10}}});
  EXPECT_EQ(add.kind, KernelClass::kElementwise);
  EXPECT_EQ(add.flops, 100);
  EXPECT_EQ(add.bytes, 4 * (100 + 10 + 100));
  EXPECT_EQ(Of("aten::sum", {{"float", {10, 10}}}).bytes, 400);
}

TEST(OpCostTest, IsUnknownWithoutShapes) {
  const OpCost cost = Of("aten::mm", {});
  EXPECT_EQ(cost.kind, KernelClass::kMatmul);
  EXPECT_EQ(cost.flops, -1);
  EXPECT_EQ(cost.bytes, -1);
}

TEST(SuitsTensorCoresTest, TakesProductsTheyKnow) {
  EXPECT_TRUE(SuitsTensorCores(
      Of("aten::mm", {{"float", {512, 512}}, {"float", {512, 512}}})));
  EXPECT_TRUE(SuitsTensorCores(Of("aten::mm", {})));
  EXPECT_FALSE(SuitsTensorCores(
      Of("aten::mm", {{"double", {512, 512}}, {"double", {512, 512}}})));
  EXPECT_FALSE(SuitsTensorCores(Of("aten::relu", {{"float", {512, 512}}})));
}

TEST(SuitsTensorCoresTest, LeavesOutVectorsAndTinyProducts) {
  EXPECT_FALSE(SuitsTensorCores(
      Of("aten::mm", {{"float", {1, 4096}}, {"float", {4096, 4096}}})));
  EXPECT_FALSE(SuitsTensorCores(
      Of("aten::mm", {{"float", {16, 16}}, {"float", {16, 16}}})));
}

TEST(SuitsTensorCoresTest, LeavesOutDepthwiseConvolutions) {
  const auto conv = [](int64_t weight_channels) {
    return Of("aten::convolution", {{"float", {8, 64, 56, 56}},
                                    {"float", {64, weight_channels, 3, 3}},
                                    {},
                                    {"ScalarList", {}, "[1, 1]"},
                                    {"ScalarList", {}, "[1, 1]"},
                                    {"ScalarList", {}, "[1, 1]"}});
  };
  EXPECT_TRUE(conv(1).depthwise);
  EXPECT_FALSE(SuitsTensorCores(conv(1)));
  EXPECT_FALSE(SuitsTensorCores(conv(32)));  // two groups
  EXPECT_TRUE(SuitsTensorCores(conv(64)));
}

TEST(ClassOfOpTest, TellsWrappersAndWorkApart) {
  EXPECT_EQ(ClassOfOp("aten::relu_"), KernelClass::kElementwise);
  EXPECT_EQ(ClassOfOp("aten::native_batch_norm"), KernelClass::kNormalisation);
  EXPECT_EQ(ClassOfOp("aten::mkldnn_convolution_backward"),
            KernelClass::kConvolution);
  EXPECT_EQ(ClassOfOp("aten::contiguous"), KernelClass::kCopy);
  EXPECT_EQ(ClassOfOp("aten::view"), KernelClass::kUnknown);
  EXPECT_EQ(ClassOfOp("aten::to"), KernelClass::kUnknown);
  EXPECT_EQ(ClassOfOp("ConvolutionBackward0"), KernelClass::kUnknown);
  EXPECT_EQ(ClassOfOp("c10d::allreduce_"), KernelClass::kCommunication);
  EXPECT_EQ(ClassOfOp("vllm::all_reduce"), KernelClass::kCommunication);
  EXPECT_EQ(ClassOfOp("symm_mem::one_shot_all_reduce"),
            KernelClass::kCommunication);
  EXPECT_EQ(ClassOfOp("symm_mem::fused_all_gather_matmul"),
            KernelClass::kUnknown);
}

}  // namespace
}  // namespace stepscope::op_cost_test
