#include "evidence/program/merged_calls.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "evidence/program/forward_ops.h"
#include "evidence/program/op_pace.h"
#include "evidence/recording_load.h"
#include "ops/op_traits.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

double WithinFramework(int64_t ns) {
  // A longer pause contains work of the program's own, which merging does not
  // save.
  return static_cast<double>(std::clamp<int64_t>(ns, 0, kFrameworkGapNs));
}

}  // namespace

double CodeNs(const Trace& trace, RowId before, RowId after) {
  return WithinFramework(trace.ops()[after].begin_ns -
                         trace.ops()[before].end_ns);
}

MergedCalls::MergedCalls(const AnalysisContext& context) : m_(context) {
  if (!m_.has_gpu) growth_.emplace(GrowthOf(m_));
}

double MergedCalls::LeftOf(RowId row, double calls) const {
  if (m_.has_gpu) return 1 / calls;
  const std::span<const Op> ops = m_.trace.ops();
  const auto ns =
      std::max(static_cast<double>(ops[row].end_ns - ops[row].begin_ns), 1.0);
  // One product over all parts does as many operations as the products it
  // replaces. At best it does them at the best recorded rate.
  double product_ns = 0;
  for (RowId op : m_.tree.inside(row)) {
    if (m_.tree.computes(op)) product_ns += growth_->LeastProductNs(op);
  }
  // Removed ops inside this op are saved already.
  double rest_ns = ns;
  for (auto it = removed_.lower_bound({ops[row].thread, ops[row].begin_ns});
       it != removed_.end() && it->first.first == ops[row].thread &&
       it->first.second < ops[row].end_ns;
       ++it) {
    rest_ns -= static_cast<double>(it->second);
  }
  if (product_ns > 0) return std::min(rest_ns, product_ns) / ns;
  // Other ops still compute for every part. Only the cost of calling them is
  // saved, at most kOpCallNs.
  const double call_ns = std::clamp<double>(rest_ns, 0, kOpCallNs);
  return std::max(0.0, rest_ns - call_ns * (1 - 1 / calls)) / ns;
}

void MergedCalls::Remove(RowId row) {
  const Op& op = m_.trace.ops()[row];
  removed_[{op.thread, op.begin_ns}] = op.end_ns - op.begin_ns;
  ops_.push_back({row, 0});
}

void MergedCalls::Add(RowId row, double calls) {
  ops_.push_back({row, LeftOf(row, calls)});
  const Op& op = m_.trace.ops()[row];
  for (RowId node : m_.backward.Of(op)) {
    ops_.push_back({node, LeftOf(node, calls)});
    const Op& ran = m_.trace.ops()[node];
    AddCode(
        WithinFramework(EndOfEngine(m_, ran.thread, ran.end_ns) - ran.end_ns),
        calls);
  }
}

MergedCalls::Sum MergedCalls::Total(const char* change) const {
  const auto steps = static_cast<double>(m_.steps.steady.size());
  ShortenedOps all = ShortenOps(m_, ops_, change);
  Sum sum{
      .ns = all.ns,
      .bound_ns = LargestUnrecordedNs(m_, all.saved_ns + code_ns_ / steps,
                                      static_cast<double>(ops_.size()) / steps),
      .edit = std::move(all.edit)};
  if (m_.has_gpu) {
    // With a GPU, saved host time counts only where the device waits for the
    // host.
    sum.bound_ns = std::min(sum.bound_ns, m_.MeanNs(Cause::kDispatch) +
                                              m_.MeanNs(Cause::kHostCode));
  }
  return sum;
}

}  // namespace stepscope
