// The kernels that the steady steps launched on the busiest device, and what is
// known of each: what it does, for which op, how much work that is. Rules on
// compute read this.
#pragma once

#include <stepscope/device_peaks.h>
#include <stepscope/op_cost.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "edit/edit.h"
#include "steps/optimizer_spans.h"
#include "steps/steps.h"

namespace stepscope {

struct KernelUse {
  RowId kernel = kNone;
  size_t step = 0;   // index of the step's window
  RowId op = kNone;  // the matrix product, convolution or attention it
                     // serves, else the op that launched it
  KernelClass serves = KernelClass::kUnknown;  // what that op is
  KernelClass kind = KernelClass::kUnknown;
  TensorCores tensor_cores = TensorCores::kUnknown;
  Precision precision = Precision::kUnknown;  // by name, else by the inputs
  bool multiplies = false;  // a product, convolution or attention itself,
                            // not its transposes or reductions
  bool eligible = false;    // multiplies, and Tensor Cores could do it
  bool compiled = false;
  bool narrow = false;
  bool in_optimizer = false;  // launched inside an optimizer's step
  double ns = 0;
  double flops = -1;  // its share of the op's; -1 unknown
  double bytes = -1;
  double elements = -1;  // of the largest tensor of what is no product
};

struct KernelUses {
  std::vector<KernelUse> uses;  // in time order
  double steps = 0;             // how many they were launched in
  Device device;                // as the run describes it; may be unknown
  DevicePeaks peaks;
  double compute_ns = 0;  // per step, all but communication

  // The sum over those for which `wanted` holds, per step.
  template <typename Wanted>
  double NsPerStep(Wanted wanted) const {
    double ns = 0;
    for (const KernelUse& use : uses) {
      if (wanted(use)) ns += use.ns;
    }
    return steps > 0 ? ns / steps : 0;
  }
};

KernelUses FindKernelUses(const Trace& trace, const Steps& steps,
                          const OptimizerSpans& optimizer, int32_t device);

// Blocks (HIP: work groups) of one launch; 0 if the grid is not known.
double BlocksOf(const Trace& trace, const Kernel& kernel);

// Scales of these kernels by one factor.
ActivityScale Scaled(const KernelUse& use, double factor);

// "convolution", "aten::mm [32, 2048] x [2048, 1000]": the op a kernel serves,
// with its shapes where they were recorded.
std::string OpWithShapes(const Trace& trace, RowId op);

}  // namespace stepscope
