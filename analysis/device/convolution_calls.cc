#include "device/convolution_calls.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "ops/by_name.h"
#include "ops/contains.h"

namespace stepscope {
namespace {

// One algorithm launches at most this many different kernels.
constexpr size_t kKernelsOfOne = 4;
constexpr size_t kLeastTimed = 2;  // once may be the program's own; our choice

bool IsProductKernel(std::string_view name) {
  const KernelClass kind = TraitsOfKernel(name).kind;
  return kind == KernelClass::kConvolution || kind == KernelClass::kMatmul;
}

// True for runtime calls that a search for an algorithm makes: it allocates
// workspaces and takes times.
bool PreparesKernels(std::string_view name) {
  return Contains(name, "Malloc") || Contains(name, "Free") ||
         Contains(name, "Event");
}

// True for runtime calls that read how long an algorithm took.
bool TakesTime(std::string_view name) {
  return Contains(name, "EventSynchronize") ||
         Contains(name, "EventElapsedTime");
}

// Returns, by row of ops(), the convolution that the op is or runs inside;
// kNone if there is none. Empty if the trace has no convolutions.
std::vector<RowId> FindConvolutions(const Trace& trace) {
  ByName class_of(trace, &ClassOfOp);
  std::vector<RowId> found(trace.ops().size(), kNone);
  bool any = false;
  for (RowId row = 0; row < found.size(); ++row) {
    const Op& op = trace.ops()[row];
    const bool convolves = class_of(op.name) == KernelClass::kConvolution;
    if (op.parent != kNone) found[row] = found[op.parent];
    if (convolves) found[row] = row;
    any |= convolves;
  }
  if (!any) found.clear();
  return found;
}

}  // namespace

ConvolutionCalls::ConvolutionCalls(const Trace& trace)
    : around_(FindConvolutions(trace)) {
  if (around_.empty()) return;
  ByName multiplies(trace, &IsProductKernel);
  ByName prepares(trace, &PreparesKernels);
  struct Launched {
    std::set<NameId> kernels = {};
    size_t count = 0;
    int64_t fastest_ns = std::numeric_limits<int64_t>::max();
  };
  std::map<RowId, Launched> by_call;
  for (const Kernel& kernel : trace.kernels()) {
    if (kernel.op == kNone || around_[kernel.op] == kNone) continue;
    if (!multiplies(kernel.name)) continue;
    Launched& launched = by_call[around_[kernel.op]];
    launched.kernels.insert(kernel.name);
    ++launched.count;
    launched.fastest_ns =
        std::min(launched.fastest_ns, kernel.end_ns - kernel.begin_ns);
  }
  ByName takes_time(trace, &TakesTime);
  std::unordered_set<RowId> prepared;
  std::unordered_map<RowId, size_t> timed;  // how often
  for (const RuntimeCall& call : trace.runtime_calls()) {
    if (call.op == kNone || around_[call.op] == kNone) continue;
    if (prepares(call.name)) prepared.insert(around_[call.op]);
    if (takes_time(call.name)) ++timed[around_[call.op]];
  }
  for (const auto& [op, launched] : by_call) {
    // A search may try few algorithms, each several times.
    const auto times = timed.find(op);
    const bool tries = times != timed.end() && times->second >= kLeastTimed &&
                       launched.count > kKernelsOfOne;
    calls_.push_back({.op = op,
                      .searches = (launched.kernels.size() > kKernelsOfOne &&
                                   prepared.contains(op)) ||
                                  tries,
                      .fastest_ns = launched.fastest_ns});
  }
}

bool ConvolutionCalls::Searches(RowId op) const {
  if (op == kNone || around_.empty() || around_[op] == kNone) return false;
  const auto call =
      std::ranges::lower_bound(calls_, around_[op], {}, &ConvolutionCall::op);
  return call != calls_.end() && call->op == around_[op] && call->searches;
}

}  // namespace stepscope
