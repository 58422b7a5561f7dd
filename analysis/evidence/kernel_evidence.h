// What rules on compute say of kernels: the longest as examples, and gains told
// with the peaks they rest on.
#pragma once

#include <stepscope/report.h>

#include <functional>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "context/rule.h"

namespace stepscope {

using KernelFilter = std::function<bool(const KernelUse&)>;

// At most three, of different ops, by the time that all calls of each take.
std::vector<Example> LongestKernels(const AnalysisContext& context,
                                    const KernelFilter& wanted);

// The shortest time that work can take on the device of a run. Rates are the
// best seen in this run, of kernels with at least 1 % of the compute time; else
// what good libraries reach of the nominal peaks.
class Roofline {
 public:
  explicit Roofline(const KernelUses& kernels);

  // Operations per ns on Tensor Cores; 0 if unknown.
  double Flops(Precision precision) const;
  // 0 if nothing is known.
  double Ns(Precision precision, double flops, double bytes) const;

 private:
  const KernelUses& kernels_;
  double seen_16_bit_ = 0;
  double seen_tf32_ = 0;
};

// "peaks of A100-80: 312 TFLOP/s in 16 bits, 2039 GB/s"; "" without peaks.
std::string PeaksInWords(const DevicePeaks& peaks);

// A finding whose change, `edit`, saves `saved_ns` of kernel time per step. If
// that is worth reporting but the step hardly becomes shorter, mostly because
// the GPU waits for the host, the finding says so.
Verdict FireForKernels(const AnalysisContext& context, Finding finding,
                       Edit edit, double saved_ns);

// The host's part of launching these kernels is dropped as well.
void DropLaunches(const AnalysisContext& context, const KernelFilter& wanted,
                  Edit& edit);

}  // namespace stepscope
