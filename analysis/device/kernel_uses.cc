#include "device/kernel_uses.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "device/device_numbers.h"
#include "ops/by_name.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/patterns.h"
#include "steps/steady_steps.h"

namespace stepscope {
namespace {

// The classes that are limited by memory traffic.
bool Streams(KernelClass kind) {
  return kind == KernelClass::kElementwise || kind == KernelClass::kReduction ||
         kind == KernelClass::kCopy || kind == KernelClass::kNormalisation;
}

// Returns the steady step that launched `work`; steps.windows.size() if none
// did. Without a recorded launch, the step in whose tiled span it began.
size_t StepOf(const Trace& trace, const Steps& steps, const DeviceWork& work) {
  const bool known = work.call != kNone;
  const int64_t time =
      known ? trace.runtime_calls()[work.call].begin_ns : work.begin_ns;
  return SteadyStepAt(steps, time,
                      known ? &StepWindow::host : &StepWindow::tiled);
}

// The classes and costs of ops, each computed once.
class Costs {
 public:
  explicit Costs(const Trace& trace)
      : trace_(trace),
        of_op_(trace.ops().size(), kNotAsked),
        class_of_(trace, &ClassOfOp) {}
  KernelClass ClassOf(RowId op) { return class_of_(trace_.ops()[op].name); }
  // Valid until the next call.
  const OpCost& Of(RowId op) {
    if (of_op_[op] == kNotAsked) {
      of_op_[op] = static_cast<uint32_t>(costs_.size());
      costs_.push_back(CostOf(trace_, op));
    }
    return costs_[of_op_[op]];
  }

 private:
  static constexpr uint32_t kNotAsked = UINT32_MAX;

  const Trace& trace_;
  std::vector<uint32_t> of_op_;  // in costs_
  std::vector<OpCost> costs_;
  ByName<KernelClass> class_of_;
};

// True for products with a single vector (cuBLAS, "void gemv2T_kernel_val<int,
// ...>") and for depthwise convolutions, which use each element of the matrix,
// or of a channel, in a few sums only. So memory limits them.
bool ReusesLittle(std::string_view kernel) {
  const std::string_view name = kernel.substr(0, kernel.find('<'));
  return Contains(name, "gemv") || Contains(name, "dot_kernel") ||
         Contains(name, "depthwise");
}

// Completes `use` from the kernel's name, for kernels without an op that says
// what they compute.
KernelUse ByItsName(KernelUse use) {
  use.multiplies = Multiplies(use.kind);
  use.eligible &= use.multiplies && use.precision != Precision::kFp64;
  return use;
}

KernelUse ByItsOp(const Trace& trace, RowId row, const KernelTraits& traits,
                  Costs& costs) {
  const Kernel& kernel = trace.kernels()[row];
  KernelUse use;
  use.kernel = row;
  use.ns = static_cast<double>(kernel.end_ns - kernel.begin_ns);
  use.kind = traits.kind;
  use.tensor_cores = traits.tensor_cores;
  use.precision = traits.precision;
  use.compiled = traits.compiled;
  use.narrow = traits.narrow;
  // There are no 16-bit products of complex numbers.
  use.eligible = !traits.complex_numbers;
  use.op = kernel.op;
  if (kernel.op == kNone) return ByItsName(use);
  use.serves = costs.ClassOf(kernel.op);
  RowId served = kernel.op;
  while (served != kNone && !Multiplies(costs.ClassOf(served))) {
    served = trace.ops()[served].parent;
  }
  if (served == kNone) {
    // A compiled region, a recurrent layer or an op of an extension launched
    // it, so only the kernel's name shows what it computes.
    return ByItsName(use);
  }
  use.op = served;
  use.serves = costs.ClassOf(served);
  const OpCost& cost = costs.Of(served);
  // An unknown kernel inside a product is taken for the product itself.
  if (use.kind == KernelClass::kUnknown) use.kind = cost.kind;
  use.multiplies = Multiplies(use.kind);
  if (use.multiplies && (use.precision == Precision::kUnknown ||
                         cost.precision == Precision::kFp64)) {
    use.precision = cost.precision;
  }
  use.eligible &= use.multiplies && SuitsTensorCores(cost) &&
                  use.precision != Precision::kFp64;
  return use;
}

KernelUse Describe(const Trace& trace, RowId row, const KernelTraits& traits,
                   Costs& costs) {
  KernelUse use = ByItsOp(trace, row, traits, costs);
  // In float32, 16 bits would still halve what is read.
  if (Is16Bit(use.precision) &&
      ReusesLittle(trace.name(trace.kernels()[row].name))) {
    use.eligible = false;
  }
  return use;
}

// Distributes the arithmetic and traffic of each product over its kernels in
// proportion to their time. For other ops, the cost is known only for kernels
// that read and write each tensor once.
void ShareWork(const Trace& trace, Costs& costs, std::vector<KernelUse>& uses) {
  std::vector<double> time(trace.ops().size());  // by op
  for (const KernelUse& use : uses) {
    if (use.multiplies && use.op != kNone) time[use.op] += use.ns;
  }
  for (KernelUse& use : uses) {
    if (use.op == kNone) continue;
    if (use.multiplies) {
      const OpCost& cost = costs.Of(use.op);
      const double share = use.ns / std::max(time[use.op], 1.0);
      if (cost.flops >= 0) use.flops = cost.flops * share;
      if (cost.bytes >= 0) use.bytes = cost.bytes * share;
    } else if (trace.kernels()[use.kernel].op == use.op &&
               trace.ops()[use.op].inputs != kNone && Streams(use.kind)) {
      const OpCost& cost = costs.Of(use.op);
      if (cost.flops >= 0) use.flops = cost.flops;
      if (cost.bytes >= 0) use.bytes = cost.bytes;
      use.elements = cost.elements;
      if (use.precision == Precision::kUnknown) use.precision = cost.precision;
    }
  }
}

}  // namespace

KernelUses FindKernelUses(const Trace& trace, const Steps& steps,
                          const OptimizerSpans& optimizer, int32_t device) {
  KernelUses found;
  found.steps = static_cast<double>(steps.steady.size());
  found.device = DescribedDevice(trace.run(), device);
  found.peaks = PeaksOf(found.device);

  ByName traits_of(trace, &TraitsOfKernel);
  Costs costs(trace);
  found.uses.reserve(trace.kernels().size());
  for (RowId row = 0; row < trace.kernels().size(); ++row) {
    const Kernel& kernel = trace.kernels()[row];
    if (kernel.device != device) continue;
    const size_t step = StepOf(trace, steps, kernel);
    if (step == steps.windows.size()) continue;
    KernelUse use = Describe(trace, row, traits_of(kernel.name), costs);
    use.step = step;
    use.in_optimizer =
        kernel.call != kNone &&
        Covers(optimizer.spans, trace.runtime_calls()[kernel.call].begin_ns);
    if (use.kind != KernelClass::kCommunication) found.compute_ns += use.ns;
    found.uses.push_back(use);
  }
  if (found.steps > 0) found.compute_ns /= found.steps;
  ShareWork(trace, costs, found.uses);
  return found;
}

double BlocksOf(const Trace& trace, const Kernel& kernel) {
  double blocks = 1;
  for (int32_t size : kernel.grid) blocks *= size;
  // hipExtModuleLaunchKernel gives the grid in work items, not in blocks.
  const bool in_items = kernel.call != kNone &&
                        trace.name(trace.runtime_calls()[kernel.call].name) ==
                            "hipExtModuleLaunchKernel";
  if (!in_items) return blocks;
  for (int32_t size : kernel.block) blocks /= std::max(size, 1);
  return std::ceil(blocks);
}

ActivityScale Scaled(const KernelUse& use, double factor) {
  return {.activity = {.table = ActivityTable::kKernel, .row = use.kernel},
          .factor = factor};
}

std::string OpWithShapes(const Trace& trace, RowId op) {
  std::string text(trace.name(trace.ops()[op].name));
  // Backend ops often have no shapes, but their caller of the same class has.
  RowId row = op;
  while (row != kNone && trace.ops()[row].inputs == kNone) {
    row = trace.ops()[row].parent;
  }
  if (row == kNone || ClassOfOp(trace.name(trace.ops()[row].name)) !=
                          ClassOfOp(trace.name(trace.ops()[op].name))) {
    return text;
  }
  int tensors = 0;
  for (const Argument& argument :
       trace.op_inputs()[trace.ops()[row].inputs].arguments) {
    if (argument.dims.empty() || tensors == 3) continue;
    text += (tensors++ == 0 ? " " : " x ") + InBrackets(argument.dims);
  }
  return text;
}

}  // namespace stepscope
