#include "replay/cpu/node_stacks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "steps/patterns.h"
#include "steps/steps.h"

namespace stepscope {
namespace {

// Limit of an estimate, as a multiple of the time that a view spends on a stack
// trace. An op may make several nodes with a stack trace each: its own, and one
// per parameter it reads. Our own choice.
constexpr double kMaxTimesUsual = 10;

}  // namespace

NodeStacks::NodeStacks(const Trace& trace, const OpTree& tree,
                       const std::vector<Span>& unused)
    : trace_(trace), unused_(unused) {
  if (!RecordedAnomalyMode(trace).value_or(false)) return;
  own_ns_.resize(trace.ops().size());
  backward_ns_.resize(trace.ops().size());
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    const auto ns = static_cast<double>(op.end_ns - op.begin_ns);
    own_ns_[row] += ns;
    if (op.parent != kNone) own_ns_[op.parent] -= ns;
    if (op.forward != kNone && IsNode(op)) backward_ns_[op.forward] += ns;
  }
  // Views compute nothing, so all of their excess is the stack trace.
  std::vector<double> all, views;
  std::map<NameId, std::vector<double>> by_name;
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    if (backward_ns_[row] <= 0) continue;
    all.push_back(LongerForwardNs(row));
    if (tree.traits(row).bookkeeping) views.push_back(all.back());
    by_name[trace.ops()[row].name].push_back(all.back());
  }
  if (all.empty()) return;
  most_ns_ = kMaxTimesUsual * Median(views.empty() ? std::move(all) : views);
  usual_ns_.resize(trace.name_count());
  for (auto& [name, ns] : by_name) {
    usual_ns_[name] = std::min(Median(std::move(ns)), most_ns_);
  }
}

double NodeStacks::PartOf(RowId row) const {
  if (usual_ns_.empty() || own_ns_[row] <= 0) return 0;
  if (backward_ns_[row] > 0) {
    return std::min(LongerForwardNs(row), most_ns_) / own_ns_[row];
  }
  if (!InUnusedGraph(row)) return 0;
  const double left = own_ns_[row] - kOpOwnNs;
  return std::clamp(usual_ns_[trace_.ops()[row].name], 0.0,
                    std::max(left, 0.0)) /
         own_ns_[row];
}

bool NodeStacks::InUnusedGraph(RowId row) const {
  return Covers(unused_, trace_.ops()[row].begin_ns);
}

// True for nodes such as "ConvolutionBackward0", false for the engine's ranges
// around them, which would count their time twice.
bool NodeStacks::IsNode(const Op& op) const {
  return op.kind == OpKind::kBackward &&
         !trace_.name(op.name).starts_with("autograd::");
}

// The time by which the op takes longer than its backward node, in ns.
double NodeStacks::LongerForwardNs(RowId row) const {
  return std::max(0.0, own_ns_[row] - std::max(backward_ns_[row], kOpOwnNs));
}

}  // namespace stepscope
