#include "evidence/device_memory_use.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <string_view>

#include "device/device_numbers.h"

namespace stepscope {
namespace {

// Reads the allocator's statistics, which live recordings sample once per step.
// A peak between two samples is missed; allocation events, if recorded, show
// it.
void FromSamples(const AnalysisContext& context, DeviceMemoryUse& use) {
  double first_reserved = -1;
  for (const DeviceSample& sample : context.trace.device_samples()) {
    if (sample.device != context.ledger->device) continue;
    if (sample.total_bytes > 0) {
      use.total = static_cast<double>(sample.total_bytes);
    }
    use.retries += std::max<int64_t>(sample.alloc_retries, 0);
    use.out_of_memory += std::max<int64_t>(sample.out_of_memory, 0);
    use.stuck =
        std::max(use.stuck, static_cast<double>(sample.inactive_split_bytes));
    use.allocated =
        std::max(use.allocated, static_cast<double>(sample.allocated_bytes));
    if (sample.reserved_bytes < 0) continue;
    const auto reserved = static_cast<double>(sample.reserved_bytes);
    if (first_reserved < 0) first_reserved = reserved;
    use.grew |= reserved > first_reserved;
    use.reserved = std::max(use.reserved, reserved);
  }
}

// Reads allocation events with totals, as profile_memory records them.
void FromEvents(const AnalysisContext& context, DeviceMemoryUse& use) {
  int64_t now = -1, first_reserved = -1;
  size_t step = 0;
  const int32_t device = MemoryDevice(context.trace, context.ledger->device);
  for (const Allocation& row : context.trace.allocations()) {
    if (row.device_type == 0 || row.device != device) continue;
    // At the start of a step, parameters and optimizer state are in use, but no
    // activations.
    while (step < context.steps.windows.size() &&
           context.steps.windows[step].host.begin_ns <= row.time_ns) {
      if (now >= 0 && (use.held < 0 || now < use.held)) {
        use.held = static_cast<double>(now);
      }
      ++step;
    }
    if (row.total_allocated_bytes >= 0) {
      now = row.total_allocated_bytes;
      if (static_cast<double>(now) > use.allocated) {
        use.allocated = static_cast<double>(now);
        use.peak_op = row.op;
      }
    }
    if (row.total_reserved_bytes > 0) {
      if (first_reserved < 0) first_reserved = row.total_reserved_bytes;
      use.grew |= row.total_reserved_bytes > first_reserved;
      use.reserved =
          std::max(use.reserved, static_cast<double>(row.total_reserved_bytes));
    }
  }
}

// Counts failed requests by their pattern: within one op, the allocator frees
// memory to the driver and then allocates again only after a request failed.
// Convolution ops do not count, because trying out algorithms (cudnn.benchmark)
// also empties the cache.
void FromCalls(const AnalysisContext& context, DeviceMemoryUse& use) {
  if (use.retries > 0 || context.steps.empty()) return;
  const int64_t begin = context.steps.windows.front().host.begin_ns;
  const int64_t end = context.steps.windows.back().host.end_ns;
  RowId freed_in = kNone;
  for (const RuntimeCall& call : context.trace.runtime_calls()) {
    if (call.begin_ns < begin || call.begin_ns >= end || call.op == kNone) {
      continue;
    }
    const std::string_view name = context.trace.name(call.name);
    if (name == "cudaFree" || name == "hipFree") {
      const NameId op = context.trace.ops()[call.op].name;
      const bool tries =
          ClassOfOp(context.trace.name(op)) == KernelClass::kConvolution;
      freed_in = tries ? kNone : call.op;
    } else if (name == "cudaMalloc" || name == "hipMalloc") {
      use.retries += freed_in == call.op;
      freed_in = kNone;
    }
  }
}

}  // namespace

DeviceMemoryUse MeasureDeviceMemory(const AnalysisContext& context) {
  DeviceMemoryUse use;
  const int64_t bytes =
      DescribedDevice(context.trace.run(), context.ledger->device).memory_bytes;
  if (bytes > 0) use.total = static_cast<double>(bytes);
  FromSamples(context, use);
  FromEvents(context, use);
  FromCalls(context, use);
  return use;
}

}  // namespace stepscope
