#include "evidence/program/op_pace.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace stepscope {
namespace {

// This share of the ops of one kind runs undisturbed. The cost of recording an
// op is estimated with the same share.
constexpr double kFastest = 0.1;

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

}  // namespace stepscope
