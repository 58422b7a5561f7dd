// What the rules about compute have in common: the longest kernels as examples,
// the rates that kernels can reach, and findings that shorten kernels.
#pragma once

#include <stepscope/report.h>

#include <functional>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "context/rule.h"

namespace stepscope {

using KernelFilter = std::function<bool(const KernelUse&)>;

// At most three examples, each of a different op, ordered by the total time of
// all calls of the op.
std::vector<Example> LongestKernels(const AnalysisContext& context,
                                    const KernelFilter& wanted);

// How busy hardware counters saw the Tensor Cores.
struct MeasuredTensorCores {
  double active_frac = -1;  // mean; -1 if nothing was measured
  double ns = 0;            // that the samples cover
};
// While kernels that `wanted` accepts ran: over the samples that they fill,
// because others may run in the rest of a sample.
MeasuredTensorCores TensorCoresDuring(const AnalysisContext& context,
                                      const KernelFilter& wanted);
// Over the steady steps.
MeasuredTensorCores TensorCoresInSteps(const AnalysisContext& context);

// Operations per ns of the data sheet; 0 if unknown. Nominal peaks are never
// reached, so callers that expect a rate take a share of them.
double NominalFlops(const DevicePeaks& peaks, Precision precision);

// The shortest time that an amount of work can take on the device of a run. The
// rates are the best in this run, of ops with at least 1 % of the compute time;
// without such ops, the share of the nominal peaks that good libraries reach.
// Keeps a reference to `kernels`, which must outlive it.
class Roofline {
 public:
  explicit Roofline(const KernelUses& kernels);

  // FLOPs per ns that products in `precision` can reach; 0 if unknown.
  double Flops(Precision precision) const;
  // The longer of the times for `flops` and for `bytes`, in ns. A negative
  // argument means unknown and is ignored; 0 if nothing is known.
  double Ns(Precision precision, double flops, double bytes) const;

 private:
  const KernelUses& kernels_;
  double seen_16_bit_ = 0;
  double seen_tf32_ = 0;
};

// "peaks of A100-80: 312 TFLOP/s in 16 bits, 19.5 in float32, 2039 GB/s"; "" if
// the exact device is unknown.
std::string PeaksInWords(const DevicePeaks& peaks);

// A finding whose proposed change, `edit`, saves `saved_ns` of kernel time per
// step. If that is enough to report but the step hardly becomes shorter, the
// finding says why: usually the GPU waits for the host.
Verdict FireForKernels(const AnalysisContext& context, Finding finding,
                       Edit edit, double saved_ns);

// Extends `edit` so that it also removes the kernels in `wanted` and their
// launch calls on the host.
void DropLaunches(const AnalysisContext& context, const KernelFilter& wanted,
                  Edit& edit);

}  // namespace stepscope
