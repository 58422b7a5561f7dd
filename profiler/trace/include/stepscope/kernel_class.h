// What the name of a device kernel says: its class, whether it runs on Tensor
// Cores (NVIDIA) or matrix cores (AMD), and the precision it multiplies in.
// This is the one list of kernel names in the project.
//
// Names are those of cuBLAS, cuDNN, CUTLASS, ATen, Triton, flash attention,
// NCCL, rocBLAS and hipBLASLt (Tensile), MIOpen, Composable Kernel and RCCL,
// Volta to Blackwell. Where a name does not tell, the answer is kUnknown, and
// no rule counts such a kernel as idle Tensor Cores.
#pragma once

#include <cstdint>
#include <string_view>

namespace stepscope {

enum class KernelClass : uint8_t {
  kUnknown,
  kMatmul,
  kConvolution,
  kAttention,
  kNormalisation,
  kElementwise,
  kReduction,
  kLayout,  // transposes between channels-first and channels-last
  kCopy,    // copies, casts and concatenations by a kernel
  kOptimizer,
  kCommunication,
  kCount
};
// "matmul", "convolution", ... as reports and exporters write it.
const char* KernelClassName(KernelClass kind);

enum class TensorCores : uint8_t { kUnknown, kNo, kYes };

// What operands are multiplied as. Accumulation may be wider.
enum class Precision : uint8_t {
  kUnknown,
  kFp64,
  kFp32,
  kTf32,
  kFp16,
  kBf16,
  kFp8,
  kInt8
};
constexpr bool Is16Bit(Precision precision) {
  return precision == Precision::kFp16 || precision == Precision::kBf16;
}

struct KernelTraits {
  KernelClass kind = KernelClass::kUnknown;
  TensorCores tensor_cores = TensorCores::kUnknown;
  Precision precision = Precision::kUnknown;
  bool compiled = false;  // made by a compiler: Triton, nvFuser, NNC
  bool narrow = false;    // loads one or two elements at a time, as for
                          // dimensions that are not multiples of 8
  bool operator==(const KernelTraits&) const = default;
};

// Case-blind.
KernelTraits TraitsOfKernel(std::string_view name);

// True for kernels of NCCL and RCCL.
bool IsCollectiveKernel(std::string_view name);

}  // namespace stepscope
