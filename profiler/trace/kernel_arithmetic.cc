#include "kernel_arithmetic.h"

#include <algorithm>

namespace stepscope {
namespace {

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <size_t kSize>
bool HasAny(std::string_view text, const std::string_view (&parts)[kSize]) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return Has(text, part); });
}

bool IsLetter(char c) { return c >= 'a' && c <= 'z'; }

// The shape of a matrix instruction as cuBLAS and CUTLASS write it: a letter,
// the digits, a letter ("h884gemm", "s1688dgrad"). Digits alone may belong to a
// hash.
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

bool HasInstruction(std::string_view name) {
  for (std::string_view digits :
       {"884", "1684", "1688", "8816", "16816", "16832", "161616", "168256"}) {
    if (HasInstruction(name, digits)) return true;
  }
  return false;
}

// Tensile: "Cijk_Alik_Bljk_<types>_..._MI16x16x1_...": the field of the types,
// "" for other names.
std::string_view TensileTypes(std::string_view name) {
  if (!name.starts_with("cijk_")) return "";
  for (int field = 0; field < 3; ++field) {
    const size_t next = name.find('_');
    if (next == std::string_view::npos) return "";
    name.remove_prefix(next + 1);
  }
  return name.substr(0, name.find('_'));
}

// nvjet_<types>_...: the first letter of the types, which may follow a field
// "sm100".
char NvjetType(std::string_view name) {
  const size_t at = name.find("nvjet_");
  if (at == std::string_view::npos) return '\0';
  name.remove_prefix(at + 6);
  if (name.starts_with("sm") && name.find('_') != std::string_view::npos) {
    name.remove_prefix(name.find('_') + 1);
  }
  return name.empty() ? '\0' : name.front();
}

// Kernels that multiply in plain FP32, FP64 or on packed halves.
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
      return Has(types, "x") ? Precision::kTf32 : Precision::kFp32;
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
  if (name.starts_with("cijk_")) {
    return Has(name, "_mi16x") || Has(name, "_mi32x") || Has(name, "_mi4x")
               ? TensorCores::kYes
               : TensorCores::kNo;
  }
  if (HasAny(name, kPlain) && !Has(name, "tensorop")) return TensorCores::kNo;
  if (Has(name, "f32f32_f32f32") && !Has(name, "tf32")) return TensorCores::kNo;
  if (HasAny(name, kMatrixCores) || HasInstruction(name)) {
    return TensorCores::kYes;
  }
  if (Has(name, "winograd")) {
    return Has(name, "fp16") || Has(name, "half") ? TensorCores::kUnknown
                                                  : TensorCores::kNo;
  }
  if (Has(name, "xmma") && HasAny(name, kNarrowTypes)) {
    return TensorCores::kYes;
  }
  return TensorCores::kUnknown;
}

Precision PrecisionOf(std::string_view name) {
  if (const std::string_view types = TensileTypes(name); !types.empty()) {
    return TensilePrecision(types);
  }
  if (const char type = NvjetType(name); type != '\0') {
    return NvjetPrecision(type);
  }
  if (Has(name, "e4m3") || Has(name, "e5m2") || Has(name, "float8")) {
    return Precision::kFp8;
  }
  if (Has(name, "bf16") || Has(name, "bfloat16")) return Precision::kBf16;
  if (Has(name, "tf32") || Has(name, "tfloat32")) {
    return Precision::kTf32;
  }
  if (Has(name, "f16") || Has(name, "fp16") || Has(name, "half") ||
      Has(name, "h884") || Has(name, "h1688") || Has(name, "h16816") ||
      Has(name, "hgemm")) {
    return Precision::kFp16;
  }
  if (Has(name, "f64f64") || Has(name, "dgemm") || Has(name, "zgemm") ||
      Has(name, "dffma") || Has(name, "d884") || Has(name, "d1684") ||
      Has(name, "d1688") || Has(name, "d16816") || Has(name, "double") ||
      Has(name, "dcudnn")) {
    return Precision::kFp64;
  }
  if (Has(name, "i8816") || Has(name, "i16832") || Has(name, "imma") ||
      Has(name, "int8")) {
    return Precision::kInt8;
  }
  // Volta and Turing multiply halves only; from Ampere on s1688 is TF32.
  if (HasInstruction(name, "884") || HasInstruction(name, "16816") ||
      HasInstruction(name, "161616")) {
    return Precision::kFp16;
  }
  if (HasInstruction(name, "1688")) {
    return Has(name, "turing") || Has(name, "_75_") ? Precision::kFp16
                                                    : Precision::kTf32;
  }
  if (Has(name, "f32") || Has(name, "fp32") || Has(name, "float") ||
      Has(name, "sgemm") || Has(name, "scudnn") || Has(name, "ffma")) {
    return Precision::kFp32;
  }
  return Precision::kUnknown;
}

}  // namespace stepscope
