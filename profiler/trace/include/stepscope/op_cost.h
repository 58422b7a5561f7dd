// What an operator must do at least, told by its name and the shapes of its
// arguments: floating-point operations and bytes moved to and from memory.
//
// A multiplication and an addition are two operations. Bytes count every
// operand and the result once: no kernel can move less, unless it is fused with
// its neighbours. Without recorded shapes everything is unknown.
#pragma once

#include <stepscope/kernel_class.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <string_view>

namespace stepscope {

// The class of the kernels an operator ("aten::addmm", "AddmmBackward0")
// exists for; kUnknown for wrappers and for what is not known.
KernelClass ClassOfOp(std::string_view op);

// The name of a dtype as Kineto writes it ("float", "c10::Half", "long int"):
// bytes per element, 0 if it is none; and how it is multiplied.
int64_t ElementBytes(std::string_view dtype);
Precision PrecisionOfType(std::string_view dtype);

// A matrix product as BLAS sees it: `batch` times [m, k] by [k, n].
struct MatmulShape {
  int64_t batch = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  // Dimensions along which an operand or the result is contiguous: loads go
  // along them, so they should be multiples of 8.
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

// The cost of one call. Where the call itself has no shapes (a backend's own
// operator), those of the innermost caller of the same class are used.
// REQUIRES: op is a row of trace.ops().
OpCost CostOf(const Trace& trace, RowId op);

// The innermost op of `op` and its callers that is a matrix product,
// convolution or attention; kNone if none is.
RowId MultiplyingOp(const Trace& trace, RowId op);

// True if Tensor Cores could do the work: a matrix product, convolution or
// attention of a floating type they know, not depthwise or grouped, and not so
// small (or a matrix times a vector) that they would not matter.
bool SuitsTensorCores(const OpCost& cost);

}  // namespace stepscope
