// OpCost: the least work of an operator (floating-point operations, and bytes
// read and written), from its name and the shapes of its arguments.
//
// A multiplication and an addition count as two operations. Every operand and
// the result count once: a kernel cannot move fewer bytes unless it is fused
// with its neighbours. Without recorded shapes all values are unknown.
#pragma once

#include <stepscope/kernel_class.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <string_view>

namespace stepscope {

// The class of the kernels that an operator ("aten::addmm", "AddmmBackward0")
// launches itself; kUnknown for unknown operators and for wrappers, whose inner
// operators launch the kernels.
KernelClass ClassOfOp(std::string_view op);

// For a dtype's name as Kineto writes it ("float", "c10::Half", "long int"):
// bytes per element (0 if the name is unknown), and the precision in which
// matrices of this type are multiplied.
int64_t ElementBytes(std::string_view dtype);
Precision PrecisionOfType(std::string_view dtype);

// A matrix product as BLAS sees it: `batch` times [m, k] by [k, n].
struct MatmulShape {
  int64_t batch = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  // True for dimensions along which an operand or the result is contiguous.
  // Loads run along them, so they should be multiples of 8.
  bool m_inner = false;
  bool n_inner = true;
  bool k_inner = true;
  double flops() const {
    return 2.0 * static_cast<double>(batch) * static_cast<double>(m) *
           static_cast<double>(n) * static_cast<double>(k);
  }
};

struct OpCost {
  KernelClass kind = KernelClass::kUnknown;
  Precision precision = Precision::kUnknown;  // of the operands
  double flops = -1;                          // -1 unknown
  double bytes = -1;
  double elements = -1;     // of the largest tensor
  MatmulShape matmul = {};  // matrix products only; m is 0 if unknown
  int64_t groups = 1;       // convolutions
  bool depthwise = false;   // one channel per group
};

// The cost of one call. If the call has no shapes (an operator of a backend),
// the shapes of its innermost caller of the same class are used. REQUIRES: op
// is a row of trace.ops().
OpCost CostOf(const Trace& trace, RowId op);

// Returns `op` or its innermost caller that is a matrix product, convolution or
// attention; kNone if there is none.
RowId MultiplyingOp(const Trace& trace, RowId op);

// True if Tensor Cores can do the work and it is large enough to matter: a
// matrix product, convolution or attention in a supported floating type that is
// neither depthwise nor grouped, neither tiny nor a matrix times a vector.
bool SuitsTensorCores(const OpCost& cost);

}  // namespace stepscope
