#include "kernel_arithmetic.h"

#include <stepscope/contains.h>

#include <algorithm>
#include <vector>

namespace stepscope {
namespace {

// A trace does not say in which precision a kernel multiplies or whether it
// uses Tensor Cores. For the kernels of libraries, the name reveals both. All
// names in this file are in lower case.
template <size_t kSize>
bool HasAny(std::string_view text, const std::string_view (&parts)[kSize]) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return Contains(text, part); });
}

bool IsLetter(char c) { return c >= 'a' && c <= 'z'; }

// True if `name` contains the shape of a matrix instruction as cuBLAS and
// CUTLASS write it: a letter, the digits, and a letter or "_" ("h884gemm",
// "s1688dgrad"). Digits alone may belong to a hash.
bool HasInstruction(std::string_view name, std::string_view digits) {
  for (size_t at = name.find(digits); at != std::string_view::npos;
       at = name.find(digits, at + 1)) {
    const size_t end = at + digits.size();
    if (at > 0 && IsLetter(name[at - 1]) && end < name.size() &&
        (IsLetter(name[end]) || name[end] == '_')) {
      return true;
    }
  }
  return false;
}

// Tensor Core instructions are named m-n-k: HMMA.16816 multiplies 16x16 by 16x8
// (m16n8k16).
bool HasInstruction(std::string_view name) {
  for (std::string_view digits :
       {"884", "1684", "1688", "8816", "16816", "16832", "161616", "168256"}) {
    if (HasInstruction(name, digits)) return true;
  }
  return false;
}

// Returns the types field of a Tensile name
// ("Cijk_Alik_Bljk_<types>_..._MI16x16x1_..."), or "" for other names.
std::string_view TensileTypes(std::string_view name) {
  if (!name.starts_with("cijk_")) return "";
  for (int field = 0; field < 3; ++field) {
    const size_t next = name.find('_');
    if (next == std::string_view::npos) return "";
    name.remove_prefix(next + 1);
  }
  return name.substr(0, name.find('_'));
}

// Returns the first letter of the types in "nvjet_<types>_...", where a field
// "sm100" may precede the types. nvjet is cuBLAS on Hopper and later.
char NvjetType(std::string_view name) {
  const size_t at = name.find("nvjet_");
  if (at == std::string_view::npos) return '\0';
  name.remove_prefix(at + 6);
  if (name.starts_with("sm") && name.find('_') != std::string_view::npos) {
    name.remove_prefix(name.find('_') + 1);
  }
  return name.empty() ? '\0' : name.front();
}

// Words in the names of kernels that multiply on ordinary units: in FP32, FP64
// or packed FP16.
constexpr std::string_view kPlain[] = {
    "ffma",           "simt",         "dffma",          "sgemm",
    "dgemm",          "cgemm",        "zgemm",          "hgemm",
    "scudnn",         "dcudnn",       "gemmsn",         "gemv",
    "gemmk1",         "dot_kernel",   "dgrad_engine",   "wgrad_alg",
    "dgrad2d",        "convolve_",    "fft2d_",         "depthwise",
    "grouped_direct", "miopensp3asm", "gcnasmconv",     "_dlops",
    "miopenconv",     "conv2d_c1_k1", "convolve_common"};

constexpr std::string_view kMatrixCores[] = {
    "hmma",          "imma",
    "wgmma",         "gmmaop",
    "wmma",          "umma",
    "tcgen05",       "tensorop",
    "nvjet",         "tensor16x8x",
    "tf32f32",       "bf16_s",
    "f16_s",         "flash_fwd",
    "flash_bwd",     "flash::",
    "fmha",          "native_sdpa",
    "sdpa_sm",       "attn_fwd",
    "attn_bwd",      "bwd_kernel_dk_dv",
    "bwd_kernel_dq", "sage_fwd",
    "triton_tem",    "xdlops",
    "_xdl_",         "mfma",
    "gtcx"};

constexpr std::string_view kNarrowTypes[] = {
    "tf32", "f16", "fp16", "bf16", "e4m3", "e5m2", "i8", "half", "bfloat16"};

Precision TensilePrecision(std::string_view types) {
  if (types.starts_with("f8") || types.starts_with("b8")) {
    return Precision::kFp8;
  }
  if (types.starts_with("i8")) return Precision::kInt8;
  switch (types.empty() ? '\0' : types.front()) {
    case 'b':
      return Precision::kBf16;
    case 'h':
      return Precision::kFp16;
    case 's':
      // "SX": computed as xfloat32, the TF32 of CDNA 3.
      return Contains(types, "x") ? Precision::kTf32 : Precision::kFp32;
    case 'd':
    case 'z':
      return Precision::kFp64;
    default:
      return Precision::kUnknown;
  }
}

Precision NvjetPrecision(char type) {
  switch (type) {
    case 'h':
      return Precision::kFp16;
    case 't':
      return Precision::kBf16;
    case 's':
      return Precision::kTf32;
    case 'q':
    case 'o':
      return Precision::kFp8;
    case 'd':
      return Precision::kFp64;
    default:
      return Precision::kUnknown;
  }
}

}  // namespace

TensorCores TensorCoresOf(std::string_view name) {
  // Tensile puts the matrix instruction into the name ("MI16x16"). A kernel
  // without it runs on ordinary units.
  if (name.starts_with("cijk_")) {
    return Contains(name, "_mi16x") || Contains(name, "_mi32x") ||
                   Contains(name, "_mi4x")
               ? TensorCores::kYes
               : TensorCores::kNo;
  }
  if (HasAny(name, kPlain) && !Contains(name, "tensorop"))
    return TensorCores::kNo;
  // The name contains the types of inputs, accumulator and result. If all are
  // float32 and "tf32" is missing, the kernel uses ordinary units.
  if (Contains(name, "f32f32_f32f32") && !Contains(name, "tf32"))
    return TensorCores::kNo;
  if (HasAny(name, kMatrixCores) || HasInstruction(name)) {
    return TensorCores::kYes;
  }
  if (Contains(name, "winograd")) {
    return Contains(name, "fp16") || Contains(name, "half")
               ? TensorCores::kUnknown
               : TensorCores::kNo;
  }
  if (Contains(name, "xmma") && HasAny(name, kNarrowTypes)) {
    return TensorCores::kYes;
  }
  return TensorCores::kUnknown;
}

// True if the name says that a kernel's data are doubles. Scalars are always
// doubles and do not count: hyperparameters among the template arguments of a
// fused optimizer, and parameters of the function that contains a lambda
// ("normal_kernel(TensorBase const&, double, double)").
bool HasDoubles(std::string_view name) {
  constexpr std::string_view kDouble = "double", kLambda = "lambda";
  if (Contains(name, "multi_tensor_apply")) {
    return Contains(name, "functor<double");
  }
  std::vector<bool> of_function;  // for each open parenthesis
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '(') {
      of_function.push_back(!name.substr(0, i).ends_with(kLambda));
    } else if (name[i] == ')' && !of_function.empty()) {
      of_function.pop_back();
    } else if (name.substr(i).starts_with(kDouble)) {
      if (of_function.empty() || !of_function.back()) return true;
      // A pointer means data: "double const*".
      std::string_view rest = name.substr(i + kDouble.size());
      if (rest.starts_with(" const")) rest.remove_prefix(6);
      while (rest.starts_with(' ')) rest.remove_prefix(1);
      if (rest.starts_with('*')) return true;
    }
  }
  return false;
}

// Tests the most specific words first: "f32" also occurs in names of kernels
// with 16-bit inputs, as the accumulator's type.
Precision PrecisionOf(std::string_view name) {
  if (const std::string_view types = TensileTypes(name); !types.empty()) {
    return TensilePrecision(types);
  }
  if (const char type = NvjetType(name); type != '\0') {
    return NvjetPrecision(type);
  }
  if (Contains(name, "e4m3") || Contains(name, "e5m2") ||
      Contains(name, "float8")) {
    return Precision::kFp8;
  }
  if (Contains(name, "bf16") || Contains(name, "bfloat16"))
    return Precision::kBf16;
  if (Contains(name, "tf32") || Contains(name, "tfloat32")) {
    return Precision::kTf32;
  }
  if (Contains(name, "f16") || Contains(name, "fp16") ||
      Contains(name, "half") || Contains(name, "h884") ||
      Contains(name, "h1688") || Contains(name, "h16816") ||
      Contains(name, "hgemm")) {
    return Precision::kFp16;
  }
  if (Contains(name, "f64f64") || Contains(name, "dgemm") ||
      Contains(name, "zgemm") || Contains(name, "dffma") ||
      Contains(name, "d884") || Contains(name, "d1684") ||
      Contains(name, "d1688") || Contains(name, "d16816") || HasDoubles(name) ||
      Contains(name, "dcudnn")) {
    return Precision::kFp64;
  }
  if (Contains(name, "i8816") || Contains(name, "i16832") ||
      Contains(name, "imma") || Contains(name, "int8")) {
    return Precision::kInt8;
  }
  // The Tensor Cores of Volta and Turing have no floating-point type but FP16.
  // From Ampere on, s1688 is TF32.
  if (HasInstruction(name, "884") || HasInstruction(name, "16816") ||
      HasInstruction(name, "161616")) {
    return Precision::kFp16;
  }
  if (HasInstruction(name, "1688")) {
    return Contains(name, "turing") || Contains(name, "_75_")
               ? Precision::kFp16
               : Precision::kTf32;
  }
  if (Contains(name, "f32") || Contains(name, "fp32") ||
      Contains(name, "float") || Contains(name, "sgemm") ||
      Contains(name, "scudnn") || Contains(name, "ffma")) {
    return Precision::kFp32;
  }
  return Precision::kUnknown;
}

}  // namespace stepscope
