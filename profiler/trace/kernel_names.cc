#include <stepscope/compiled_kernel.h>
#include <stepscope/contains.h>
#include <stepscope/kernel_class.h>

#include <algorithm>
#include <string>

#include "kernel_arithmetic.h"

namespace stepscope {
namespace {

// Groups of words that decide the class of a kernel. Only the name can tell,
// because most traces have neither source nor shapes for a kernel.
struct Group {
  KernelClass kind;
  std::string_view parts[24];
};

// In this order: the first group with a word in the name decides.
constexpr Group kGroups[] = {
    {KernelClass::kLayout,
     {"nchwtonhwc", "nhwctonchw", "ncdhwtondhwc", "ndhwctoncdhw",
      "tensortransform", "converttensor", "batched_transpose", "transpose_nchw",
      "transpose_cnhw", "transpose_nhwc", "general_copy_kernel_nchw"}},
    {KernelClass::kOptimizer,
     {"adamfunctor", "adammathfunctor", "fusedadam", "fused_adam", "adamw",
      "fusedsgd", "fused_sgd", "sgdfunctor", "sgdmathfunctor", "lambstage",
      "fused_adagrad", "adagradmathfunctor", "distadam", "adam_kernel"}},
    {KernelClass::kAttention,
     {"flash_fwd", "flash_bwd", "flash::", "fmha", "sdpa", "attn_fwd",
      "attn_bwd", "attention", "sage_fwd", "bwd_kernel_dk_dv",
      "bwd_kernel_dq"}},
    {KernelClass::kNormalisation,
     {"batch_norm", "batchnorm", "bn_fw", "bn_bw", "layer_norm", "layernorm",
      "layer_norm", "group_norm", "groupnorm", "instance_norm", "rmsnorm",
      "rms_norm", "gammabeta", "rowwisemoments", "computeinternalgradients",
      "norm_fwd", "norm_bwd"}},
    {KernelClass::kReduction,
     {"splitkreduce", "reduce_wgrad", "reduction::kernel", "triton_red",
      "triton_per", "reduce_kernel", "reduce_1block", "devicereduce", "softmax",
      "max_pool", "avg_pool", "average_pool", "maxpool", "avgpool", "nll_loss",
      "classnllcriterion", "argmax", "reduce_segments"}},
    {KernelClass::kCopy,
     {"direct_copy_kernel", "bfloat16_copy_kernel", "float16_copy_kernel",
      "float8_copy_kernel", "catarraybatchedcopy", "copy_device_to_device",
      "im2d2col", "im2col", "col2im", "memcpy"}},
    {KernelClass::kElementwise,
     {"elementwise", "scalepackedtensor", "optensor", "fused_dropout",
      "cudacodegen::kernel", "epilogue::impl", "fillfunctor", "activation_",
      "subtensorop"}},
    {KernelClass::kConvolution,
     {"fprop", "dgrad", "wgrad", "conv", "scudnn", "dcudnn", "884cudnn",
      "1688cudnn", "16816cudnn", "winograd", "depthwise", "igemm_", "fft2d_",
      "gridwise_conv"}},
    {KernelClass::kMatmul,
     {"gemm", "gemv", "cijk_", "nvjet", "matmul", "triton_tem", "triton_mm",
      "triton_bmm", "dot_kernel", "cublaslt"}},
    {KernelClass::kReduction, {"reduce"}},
    {KernelClass::kElementwise, {"multi_tensor_apply"}}};

// Libraries whose kernels do nothing but communicate: NCCL, RCCL, MSCCL and
// MSCCL++, oneCCL, NVSHMEM and rocSHMEM, DeepEP, and the user buffers of
// Transformer Engine. In lower case.
constexpr std::string_view kLibraries[] = {
    "nccl",         "rccl",          "msccl",   "oneccl",
    "nvshmem",      "rocshmem",      "deep_ep", "hybrid_ep",
    "userbuffers_", "kuserbuffers_", "mori::"};

// Functions of serving engines and of PyTorch's symmetric memory. "_" is left
// out.
constexpr std::string_view kFunctions[] = {
    "allreduce",      "reducescatter",     "allgather",
    "alltoall",       "crossdevicereduce", "crossdevicestore",
    "moea2adispatch", "moea2acombine",     "onstreamkernelthreadgroup"};

std::string WithoutUnderscores(std::string_view name) {
  std::string text(name);
  std::erase(text, '_');
  return text;
}

// Returns the function's own name, without return type, namespaces, template
// arguments and parameters.
std::string_view FunctionOf(std::string_view name) {
  const size_t open = name.find_first_of("<(");
  // Template arguments and parameters contain names of other types and
  // functions, which must not decide the class.
  name = name.substr(0, open);
  const size_t before = name.find_last_of(": ");
  return before == std::string_view::npos ? name : name.substr(before + 1);
}

std::string WithoutAnonymous(std::string_view text) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  std::string plain(text);
  for (size_t at; (at = plain.find(kAnonymous)) != std::string::npos;) {
    plain.erase(at, kAnonymous.size());
  }
  return plain;
}

// `text` is a name in lower case without parameters.
bool IsCollective(std::string_view text) {
  const std::string plain = WithoutAnonymous(text);
  std::string_view name = plain;
  if (name.starts_with("void ")) name.remove_prefix(5);
  for (std::string_view library : kLibraries) {
    if (name.starts_with(library)) return true;
  }
  // A generated kernel is named after the ops that were fused into it. A
  // collective among these ops runs as a separate kernel.
  if (name.starts_with("triton_")) return false;
  const std::string function = WithoutUnderscores(FunctionOf(name));
  // Not collectives: a product that sends its result, and a reduction within a
  // warp or block.
  if (Contains(function, "gemm") || Contains(function, "matmul") ||
      Contains(function, "warpallreduce") ||
      Contains(function, "blockallreduce")) {
    return false;
  }
  return std::ranges::any_of(kFunctions, [&](std::string_view part) {
    return Contains(function, part);
  });
}

KernelClass ClassOf(std::string_view name) {
  if (IsCollective(name)) return KernelClass::kCommunication;
  // Not a multiplication: a kernel that prepares a convolution, and a library
  // whose name contains "gemm".
  if (Contains(name, "offsetskernel") || Contains(name, "fbgemm_gpu")) {
    return KernelClass::kUnknown;
  }
  // Inductor's names have the kind of the kernel first, and then all ops of
  // which at least a part was fused into it
  // ("triton_poi_fused__scaled_dot_product_efficient_attention").
  if (name.starts_with("triton_poi")) return KernelClass::kElementwise;
  const bool reduces =
      name.starts_with("triton_red") || name.starts_with("triton_per");
  for (const Group& group : kGroups) {
    if (reduces && group.kind == KernelClass::kAttention) continue;
    for (std::string_view part : group.parts) {
      if (part.empty()) break;
      if (Contains(name, part)) return group.kind;
    }
  }
  // NNC names a kernel "fused_" and the ops that it fused.
  return name.starts_with("fused_") ? KernelClass::kElementwise
                                    : KernelClass::kUnknown;
}

// Returns the part of a name that identifies the kernel. Parameter types are
// cut off, because they may contain words of other classes
// ("dgrad_engine<float>(..., kernel_grad_params, ...)").
std::string_view WithoutParameters(std::string_view name) {
  if (name.find("at::native") != std::string_view::npos) return name;
  const size_t close = name.rfind('>');
  size_t open = name.find('(', close == std::string_view::npos ? 0 : close);
  constexpr std::string_view kAnonymous = "(anonymous";
  while (open != std::string_view::npos &&
         name.substr(open).starts_with(kAnonymous)) {
    open = name.find('(', open + 1);
  }
  return open == std::string_view::npos || open == 0 ? name
                                                     : name.substr(0, open);
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace

bool IsCollectiveKernel(std::string_view name) {
  const std::string lower = Lower(name);
  return IsCollective(WithoutParameters(lower));
}

std::string FunctionOfKernel(std::string_view name) {
  // Names of copies have neither a return type nor parameters.
  return name.starts_with("void ") || Contains(name, "::")
             ? std::string(FunctionOf(WithoutAnonymous(name)))
             : std::string(name);
}

KernelTraits TraitsOfKernel(std::string_view text) {
  const std::string lower = Lower(text);
  const std::string_view name = WithoutParameters(lower);
  KernelTraits traits;
  traits.kind = ClassOf(name);
  traits.compiled = name.starts_with("triton_") || name.starts_with("fused_") ||
                    Contains(name, "cudacodegen::kernel") ||
                    ParseCompiledKernel(name).has_value();
  traits.precision = PrecisionOf(name);
  if (Multiplies(traits.kind)) {
    traits.tensor_cores = TensorCoresOf(name);
    // A complex number is as wide as two elements.
    traits.complex_numbers = Contains(name, "cgemm") || Contains(name, "zgemm");
    traits.narrow = !traits.complex_numbers &&
                    (Contains(name, "align1") || Contains(name, "align2"));
  } else if (traits.kind != KernelClass::kUnknown) {
    traits.tensor_cores = TensorCores::kNo;
  }
  return traits;
}

const char* KernelClassName(KernelClass kind) {
  switch (kind) {
    case KernelClass::kMatmul:
      return "matmul";
    case KernelClass::kConvolution:
      return "convolution";
    case KernelClass::kAttention:
      return "attention";
    case KernelClass::kNormalisation:
      return "normalisation";
    case KernelClass::kElementwise:
      return "elementwise";
    case KernelClass::kReduction:
      return "reduction";
    case KernelClass::kLayout:
      return "layout";
    case KernelClass::kCopy:
      return "copy";
    case KernelClass::kOptimizer:
      return "optimizer";
    case KernelClass::kCommunication:
      return "communication";
    default:
      return "unknown";
  }
}

}  // namespace stepscope
