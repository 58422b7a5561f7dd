#include "evidence/program/op_pace.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/kernel_uses.h"
#include "evidence/program/op_shapes.h"
#include "ops/by_name.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"

namespace stepscope {
namespace {

// This share of the ops of one kind runs undisturbed. The cost of recording an
// op is estimated with the same share.
constexpr double kFastest = 0.1;

// What one core does at least. Cores stream 5 to 20 GB/s (STREAM), and memory
// that is touched for the first time comes at 1 to 4 GB/s (a page fault takes
// about 1 us for 4 KiB). SSE2 alone multiplies at 10 GFLOP/s in 32 bits. So
// these rates leave a factor of 2 to 5 for old and for virtual machines.
constexpr double kLeastBytesPerNs = 0.5;
constexpr double kLeastFlopsPerNs = 2;
// Ops on fewer elements run on one thread (at::internal::GRAIN_SIZE), and
// calling an op is a large part of their time.
constexpr double kParallelElements = 32768;
// Products of smaller matrices mostly cost calls. Our own choice.
constexpr double kLargeFlops = 1e6;
// The most that calling an op takes besides its work.
constexpr double kCallNs = 50'000;

// Ops that do at most one simple operation per element, so that memory sets
// their pace.
bool IsSimple(std::string_view op) {
  return IsAnyOf(
      op, {"aten::add", "aten::add_", "aten::sub", "aten::sub_", "aten::mul",
           "aten::mul_", "aten::neg", "aten::copy_", "aten::fill_",
           "aten::zero_", "aten::clamp_min", "aten::clamp_min_", "aten::relu",
           "aten::relu_", "aten::threshold_backward", "aten::sum", "aten::mean",
           "aten::where", "aten::masked_fill_"});
}

// Returns the time in ns that one core needs for `op` at most; 0 if that is not
// known.
double OneCoreNs(const Trace& trace, RowId op, bool is_simple) {
  const OpCost cost = CostOf(trace, op);
  if (cost.elements <= 0 && cost.flops <= 0) return 0;
  if (is_simple && cost.elements > 0) {
    const auto elements =
        static_cast<double>(ElementsIn(BroadcastAll(trace, op)));
    if (elements < kParallelElements) return 0;
    const double bytes = cost.bytes * elements / cost.elements;
    return kCallNs + bytes / kLeastBytesPerNs;
  }
  // Many cores have no instructions for 16-bit floats (slow-half-products).
  const bool is_float =
      cost.precision == Precision::kFp32 || cost.precision == Precision::kFp64;
  if (cost.kind != KernelClass::kMatmul || !is_float ||
      cost.flops < kLargeFlops * static_cast<double>(cost.matmul.batch)) {
    return 0;
  }
  return kCallNs + cost.flops / kLeastFlopsPerNs +
         std::max(cost.bytes, 0.0) / kLeastBytesPerNs;
}

}  // namespace

OpGrowth GrowthOf(const AnalysisContext& m) {
  std::vector<RowId> ops;
  for (const auto& timeline : m.timelines) {
    for (const Segment& segment : timeline) {
      if (segment.cause == Cause::kCompute) ops.push_back(segment.op);
    }
  }
  std::ranges::sort(ops);
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
  return OpGrowth(m.trace, ops);
}

double SlowedNs(const AnalysisContext& m) {
  std::unordered_map<RowId, double> computing;  // by op, in ns
  for (const auto& timeline : m.timelines) {
    for (const Segment& segment : timeline) {
      if (segment.cause != Cause::kCompute || segment.op == kNone) continue;
      computing[segment.op] += static_cast<double>(segment.length());
    }
  }
  std::map<std::pair<NameId, RowId>, std::vector<double>> kinds;
  for (const auto& [row, ns] : computing) {
    const Op& op = m.trace.ops()[row];
    // Ops with equal arguments share a row of inputs. Group by this row,
    // because an op with larger tensors would otherwise seem to be slowed down.
    if (op.inputs != kNone) kinds[{op.name, op.inputs}].push_back(ns);
  }
  double slowed = 0;
  for (auto& [kind, times] : kinds) {
    const auto fast =
        times.begin() + static_cast<std::ptrdiff_t>(
                            kFastest * static_cast<double>(times.size() - 1));
    std::ranges::nth_element(times, fast);
    const double best = *fast;
    for (double ns : times) slowed += std::max(0.0, ns - best);
  }
  return slowed / static_cast<double>(std::max<size_t>(m.timelines.size(), 1));
}

StalledOps FindStalledOps(const AnalysisContext& m) {
  StalledOps found;
  ByName is_simple(m.trace, &IsSimple);
  // Ops of one kind have equal arguments, so one core needs equally long.
  struct Kind {
    RowId op = kNone;
    double needed_ns = 0, lost_ns = 0, ns = 0, calls = 0;
  };
  std::map<std::pair<NameId, RowId>, Kind> kinds;
  for (const auto& timeline : m.timelines) {
    for (const Segment& segment : timeline) {
      if (segment.cause != Cause::kCompute || segment.op == kNone) continue;
      const Op& op = m.trace.ops()[segment.op];
      if (op.inputs == kNone) continue;
      const auto [at, is_new] = kinds.try_emplace({op.name, op.inputs});
      Kind& kind = at->second;
      if (is_new) {
        kind.op = segment.op;
        kind.needed_ns = OneCoreNs(m.trace, segment.op, is_simple(op.name));
      }
      const auto ns = static_cast<double>(segment.length());
      if (kind.needed_ns <= 0 || ns <= kind.needed_ns) continue;
      found.ns += ns - kind.needed_ns;
      found.whole_ns += ns;
      kind.lost_ns += ns - kind.needed_ns;
      kind.ns += ns;
      ++kind.calls;
    }
  }
  if (found.ns <= 0) return found;
  const auto steps = static_cast<double>(m.timelines.size());
  found.ns /= steps;
  found.whole_ns /= steps;
  const Kind& most = std::ranges::max_element(kinds, {}, [](const auto& one) {
                       return one.second.lost_ns;
                     })->second;
  found.longest = OpWithShapes(m.trace, most.op);
  found.longest_ns = most.ns / most.calls;
  return found;
}

}  // namespace stepscope
