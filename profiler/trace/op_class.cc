#include <stepscope/contains.h>
#include <stepscope/op_cost.h>

#include <array>
#include <string_view>
#include <unordered_map>

namespace stepscope {
namespace {

// Ops grouped by what limits them on a device: arithmetic for multiplications
// (matmul, convolution, attention), memory for all others.
constexpr auto kMatmuls = std::to_array<std::string_view>(
    {"_scaled_mm", "_int_mm", "addbmm", "addmm", "addmm_", "baddbmm",
     "baddbmm_", "bmm", "dot", "einsum", "linear", "linear_backward", "matmul",
     "mkldnn_linear", "mm", "mv", "addmv", "_addmm_activation"});

constexpr auto kElementwise =
    std::to_array<std::string_view>({"abs",
                                     "add",
                                     "addcdiv",
                                     "addcmul",
                                     "bitwise_and",
                                     "bitwise_or",
                                     "ceil",
                                     "clamp",
                                     "clamp_max",
                                     "clamp_min",
                                     "cos",
                                     "div",
                                     "dropout",
                                     "elu",
                                     "elu_backward",
                                     "eq",
                                     "erf",
                                     "exp",
                                     "fill",
                                     "floor",
                                     "ge",
                                     "gelu",
                                     "gelu_backward",
                                     "gt",
                                     "hardsigmoid",
                                     "hardswish",
                                     "hardswish_backward",
                                     "hardtanh",
                                     "hardtanh_backward",
                                     "le",
                                     "leaky_relu",
                                     "leaky_relu_backward",
                                     "lerp",
                                     "log",
                                     "log1p",
                                     "logical_and",
                                     "logical_not",
                                     "lt",
                                     "masked_fill",
                                     "maximum",
                                     "minimum",
                                     "mish",
                                     "mul",
                                     "native_dropout",
                                     "native_dropout_backward",
                                     "ne",
                                     "neg",
                                     "pow",
                                     "reciprocal",
                                     "relu",
                                     "remainder",
                                     "rsqrt",
                                     "rsub",
                                     "sigmoid",
                                     "sigmoid_backward",
                                     "sign",
                                     "silu",
                                     "silu_backward",
                                     "sin",
                                     "softplus",
                                     "sqrt",
                                     "square",
                                     "sub",
                                     "tanh",
                                     "tanh_backward",
                                     "threshold",
                                     "threshold_backward",
                                     "where",
                                     "zero",
                                     "isnan",
                                     "mse_loss_backward"});

constexpr auto kReductions =
    std::to_array<std::string_view>({"_log_softmax",
                                     "_log_softmax_backward_data",
                                     "_softmax",
                                     "_softmax_backward_data",
                                     "adaptive_avg_pool2d",
                                     "_adaptive_avg_pool2d",
                                     "_adaptive_avg_pool2d_backward",
                                     "all",
                                     "amax",
                                     "amin",
                                     "any",
                                     "argmax",
                                     "argmin",
                                     "avg_pool2d",
                                     "avg_pool2d_backward",
                                     "cumsum",
                                     "linalg_vector_norm",
                                     "log_softmax",
                                     "logsumexp",
                                     "max",
                                     "max_pool2d_with_indices",
                                     "max_pool2d_with_indices_backward",
                                     "mean",
                                     "min",
                                     "mse_loss",
                                     "nll_loss_forward",
                                     "nll_loss_backward",
                                     "norm",
                                     "prod",
                                     "softmax",
                                     "std",
                                     "sum",
                                     "var"});

constexpr auto kNorms = std::to_array<std::string_view>(
    {"_batch_norm_impl_index", "_batch_norm_with_update", "_fused_rms_norm",
     "batch_norm", "batch_norm_backward", "cudnn_batch_norm",
     "cudnn_batch_norm_backward", "group_norm", "instance_norm", "layer_norm",
     "miopen_batch_norm", "miopen_batch_norm_backward", "native_batch_norm",
     "native_batch_norm_backward", "native_group_norm",
     "native_group_norm_backward", "native_layer_norm",
     "native_layer_norm_backward", "rms_norm"});

constexpr auto kCopies = std::to_array<std::string_view>(
    {"_to_copy", "cat", "clone", "contiguous", "copy", "stack"});

using Classes = std::unordered_map<std::string_view, KernelClass>;

// The keys are names without "aten::".
const Classes& ExactClasses() {
  static const Classes classes = [] {
    Classes made;
    for (std::string_view name : kMatmuls) made[name] = KernelClass::kMatmul;
    for (std::string_view name : kNorms)
      made[name] = KernelClass::kNormalisation;
    for (std::string_view name : kReductions)
      made[name] = KernelClass::kReduction;
    return made;
  }();
  return classes;
}

// The same for operators that also exist in place, with "_" at the end.
const Classes& PlainClasses() {
  static const Classes classes = [] {
    Classes made;
    for (std::string_view name : kElementwise)
      made[name] = KernelClass::kElementwise;
    for (std::string_view name : kCopies) made[name] = KernelClass::kCopy;
    return made;
  }();
  return classes;
}

// c10d opens record_param_comms around each collective. Other libraries name
// collectives like their functions: "symm_mem::one_shot_all_reduce",
// "vllm::all_reduce". A collective that also multiplies counts as computing.
bool IsCollectiveCall(std::string_view name) {
  if (name.starts_with("c10d::") || name.starts_with("_c10d_functional::") ||
      name.starts_with("c10d_functional::") || name == "record_param_comms") {
    return true;
  }
  const size_t colons = name.find("::");
  if (colons == std::string_view::npos || name.starts_with("aten::") ||
      name.starts_with("autograd::") || name.starts_with("torch::")) {
    return false;
  }
  const std::string_view function = name.substr(colons + 2);
  const auto has = [&](std::string_view part) {
    return Contains(function, part);
  };
  return !has("matmul") && !has("gemm") && !has("_mm") &&
         (has("all_reduce") || has("allreduce") || has("all_gather") ||
          has("reduce_scatter") || has("all_to_all"));
}

}  // namespace

KernelClass ClassOfOp(std::string_view name) {
  const auto has = [&](std::string_view part) { return Contains(name, part); };
  if (IsCollectiveCall(name)) return KernelClass::kCommunication;
  if (!name.starts_with("aten::")) return KernelClass::kUnknown;
  name.remove_prefix(6);
  if (name.starts_with("_fused_")) {
    return name.starts_with("_fused_ad") || name.starts_with("_fused_sgd")
               ? KernelClass::kOptimizer
               : KernelClass::kUnknown;
  }
  const auto exact = ExactClasses().find(name);
  const bool is_exact = exact != ExactClasses().end();
  if (is_exact && exact->second == KernelClass::kMatmul) return exact->second;
  // native_multi_head_attention also contains the projections, so its inner ops
  // are classified instead.
  if (has("_attention") && !has("native_multi_head")) {
    return KernelClass::kAttention;
  }
  if (has("conv") &&
      ((name.starts_with("conv") && !name.starts_with("convert")) ||
       has("_convolution") || has("slow_conv") || has("thnn_conv") ||
       has("conv_depthwise"))) {
    return KernelClass::kConvolution;
  }
  if (is_exact) return exact->second;
  std::string_view plain = name;
  if (plain.ends_with("_")) plain.remove_suffix(1);
  const auto found = PlainClasses().find(plain);
  return found == PlainClasses().end() ? KernelClass::kUnknown : found->second;
}

int64_t ElementBytes(std::string_view dtype) {
  if (dtype == "float" || dtype == "int" || dtype == "unsigned int") return 4;
  if (dtype == "double" || dtype == "long" || dtype == "long int" ||
      dtype == "c10::complex<float>" || dtype == "unsigned long") {
    return 8;
  }
  if (dtype == "c10::Half" || dtype == "c10::BFloat16" || dtype == "short" ||
      dtype == "short int") {
    return 2;
  }
  if (dtype == "c10::complex<double>") return 16;
  if (dtype == "bool" || dtype == "unsigned char" || dtype == "signed char" ||
      dtype == "char" || dtype.starts_with("c10::Float8")) {
    return 1;
  }
  return 0;
}

Precision PrecisionOfType(std::string_view dtype) {
  if (dtype == "double") return Precision::kFp64;
  if (dtype == "float") return Precision::kFp32;
  if (dtype == "c10::Half") return Precision::kFp16;
  if (dtype == "c10::BFloat16") return Precision::kBf16;
  if (dtype.starts_with("c10::Float8")) return Precision::kFp8;
  if (dtype == "signed char" || dtype == "char") return Precision::kInt8;
  return Precision::kUnknown;
}

}  // namespace stepscope
