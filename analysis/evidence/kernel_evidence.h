// What the rules about compute share: the longest kernels as examples, the
// rates that kernels can reach, and findings that shorten kernels.
#pragma once

#include <stepscope/report.h>

#include <functional>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "context/rule.h"

namespace stepscope {

using KernelFilter = std::function<bool(const KernelUse&)>;

// Returns at most three examples, each of a different op, ordered by the total
// time of all calls of the op.
std::vector<Example> LongestKernels(const AnalysisContext& context,
                                    const KernelFilter& wanted);

// Returns the device time of the kernels that each op launched itself, in ns
// over the steady steps, by row of Trace::ops().
std::vector<double> DeviceNsByOp(const AnalysisContext& context);
// Returns the sum over `op` and the ops inside it.
double DeviceNsInside(const AnalysisContext& context,
                      const std::vector<double>& by_op, RowId op);

// How busy the Tensor Cores were, measured by hardware counters.
struct MeasuredTensorCores {
  double active_frac = -1;  // mean; -1 if nothing was measured
  double ns = 0;            // length of the samples
};
// Measures while kernels that `wanted` accepts ran. Uses only samples that
// these kernels fill, because other kernels may run in the rest of a sample.
MeasuredTensorCores TensorCoresDuring(const AnalysisContext& context,
                                      const KernelFilter& wanted);
// Measures over the steady steps.
MeasuredTensorCores TensorCoresInSteps(const AnalysisContext& context);

// Returns the operations per ns of the data sheet; 0 if unknown. Kernels never
// reach nominal peaks, so callers that want a likely rate take a share of them.
double NominalFlops(const DevicePeaks& peaks, Precision precision);

// The shortest time that an amount of work can take on the run's device. Uses
// the best rates in this run, of ops with at least 1 % of the compute time; if
// there are no such ops, the share of the nominal peaks that good libraries
// reach. Keeps a reference to `kernels`, which must outlive it.
class Roofline {
 public:
  explicit Roofline(const KernelUses& kernels);

  // Returns the FLOPs per ns that products in `precision` can reach; 0 if
  // unknown.
  double Flops(Precision precision) const;
  // Returns the longer of the times for `flops` and for `bytes`, in ns. A
  // negative argument means unknown and is ignored. Returns 0 if nothing is
  // known.
  double Ns(Precision precision, double flops, double bytes) const;

 private:
  const KernelUses& kernels_;
  double seen_16_bit_ = 0;
  double seen_tf32_ = 0;
};

// Returns "peaks of A100-80: 312 TFLOP/s in 16 bits, 19.5 in float32, 2039
// GB/s"; "" if the exact device is unknown.
std::string PeaksInWords(const DevicePeaks& peaks);

// Returns a finding whose proposed change, `edit`, saves `saved_ns` of kernel
// time per step. If that is enough to report but the step hardly becomes
// shorter, the finding says why. Usually the GPU waits for the host.
Verdict FireForKernels(const AnalysisContext& context, Finding finding,
                       Edit edit, double saved_ns);

// Extends `edit` so that it also removes the kernels in `wanted` and their
// launch calls on the host.
void DropLaunches(const AnalysisContext& context, const KernelFilter& wanted,
                  Edit& edit);

}  // namespace stepscope
