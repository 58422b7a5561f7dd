#include "evidence/program/shortened_ops.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "steps/steady_steps.h"

namespace stepscope {
namespace {

using ByThread = std::map<RowId, std::vector<ShortenedOp>>;

// Returns the ops of steady steps that lie in no other op of the list, by
// thread and in time order.
ByThread Outermost(const AnalysisContext& context,
                   std::vector<ShortenedOp> list) {
  const std::span<const Op> ops = context.trace.ops();
  std::erase_if(list, [&](const ShortenedOp& one) {
    return ops[one.op].thread == kNone ||
           !InSteadyStep(context.steps, ops[one.op].begin_ns);
  });
  // If ops start at the same time, the outer one has the lower row.
  std::ranges::sort(list, {}, [&](const ShortenedOp& one) {
    return std::tuple(ops[one.op].thread, ops[one.op].begin_ns, one.op);
  });
  ByThread by_thread;
  for (const ShortenedOp& one : list) {
    std::vector<ShortenedOp>& kept = by_thread[ops[one.op].thread];
    // Compare ends only, because rounded times may make neighbours overlap
    // slightly.
    if (!kept.empty() && ops[one.op].end_ns <= ops[kept.back().op].end_ns) {
      continue;
    }
    kept.push_back(one);
  }
  return by_thread;
}

// Returns the op of the list in which `call` was made; nullptr if there is
// none.
const ShortenedOp* OpAround(const AnalysisContext& context,
                            const ByThread& by_thread,
                            const RuntimeCall& call) {
  const auto thread = by_thread.find(call.thread);
  if (thread == by_thread.end()) return nullptr;
  const std::span<const Op> ops = context.trace.ops();
  const auto after = std::ranges::upper_bound(
      thread->second, call.begin_ns, {},
      [&](const ShortenedOp& one) { return ops[one.op].begin_ns; });
  if (after == thread->second.begin()) return nullptr;
  const ShortenedOp& one = *(after - 1);
  return call.begin_ns < ops[one.op].end_ns ? &one : nullptr;
}

}  // namespace

ShortenedOps ShortenOps(const AnalysisContext& context,
                        std::vector<ShortenedOp> list, const char* change) {
  ShortenedOps made;
  const Trace& trace = context.trace;
  const double steps =
      std::max<double>(static_cast<double>(context.steps.steady.size()), 1);
  const auto count = [&](double ns, double left) {
    made.ns += ns / steps;
    made.saved_ns += ns * (1 - left) / steps;
  };
  const ByThread by_thread = Outermost(context, std::move(list));
  for (const auto& [thread, ops] : by_thread) {
    for (const ShortenedOp& one : ops) {
      const Op& op = trace.ops()[one.op];
      const double ns = static_cast<double>(op.end_ns - op.begin_ns);
      made.edit.cuts.push_back({.thread = thread,
                                .span = {op.begin_ns, op.end_ns},
                                .keep_ns = one.left * ns,
                                .change = change});
      // With a GPU, the device's time counts instead (below).
      if (!context.has_gpu) count(ns, one.left);
    }
  }
  const auto scale = [&](const auto& rows, ActivityTable table) {
    for (RowId row = 0; row < rows.size(); ++row) {
      if (rows[row].call == kNone) continue;
      const ShortenedOp* one =
          OpAround(context, by_thread, trace.runtime_calls()[rows[row].call]);
      if (one == nullptr) continue;
      made.edit.scales.push_back({{table, row}, one->left});
      count(static_cast<double>(rows[row].end_ns - rows[row].begin_ns),
            one->left);
    }
  };
  scale(trace.kernels(), ActivityTable::kKernel);
  scale(trace.copies(), ActivityTable::kCopy);
  scale(trace.memsets(), ActivityTable::kMemset);
  return made;
}

}  // namespace stepscope
