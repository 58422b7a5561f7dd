#include "evidence/gradient_passes.h"

#include <algorithm>
#include <string_view>

#include "evidence/host_copies.h"

namespace stepscope {
namespace {

// 1 MiB: latency rather than bandwidth limits smaller collectives.
constexpr int64_t kBigBytes = 1 << 20;

// Returns the best bus bandwidth, in bytes/s, of collectives of at least
// `least_bytes`. Bus bandwidth is comparable between kinds of collectives and
// numbers of ranks.
double BestOf(const std::vector<Collective>& collectives, int32_t world_size,
              int64_t least_bytes) {
  double best = 0;
  for (const Collective& one : collectives) {
    // The recorded time includes waiting for other ranks, so take the best: it
    // waited least.
    const int32_t ranks = one.group_size > 0 ? one.group_size : world_size;
    if (one.bytes < least_bytes || one.moved.length() <= 0) continue;
    best = std::max(best, one.bytes * BusFactor(one.kind, ranks) /
                              (one.moved.length() * 1e-9));
  }
  return best;
}

// Returns, sorted, moments at which a forward pass runs: matrix products
// outside the backward pass, and starts of DDP's forward.
std::vector<int64_t> ForwardTimes(const Trace& trace, const OpTree& tree,
                                  RowId thread) {
  std::vector<int64_t> times;
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    if (op.thread == thread && tree.traits(row).matmul &&
        !tree.in_backward(row)) {
      times.push_back(op.begin_ns);
    }
  }
  for (const Range& range : trace.ranges()) {
    if (range.kind == RangeKind::kCollective &&
        trace.name(range.name).find("DataParallel") != std::string_view::npos) {
      times.push_back(range.begin_ns);
    }
  }
  std::ranges::sort(times);
  return times;
}

// Returns the ends of the optimizer's updates, sorted, without zero_grad.
std::vector<int64_t> OptimizerEnds(const Trace& trace) {
  std::vector<int64_t> ends;
  for (const Range& range : trace.ranges()) {
    const std::string_view name = trace.name(range.name);
    if ((range.kind == RangeKind::kOptimizer &&
         name.find("zero_grad") == std::string_view::npos) ||
        (range.kind == RangeKind::kPhase && name == "optimizer")) {
      ends.push_back(range.end_ns);
    }
  }
  std::ranges::sort(ends);
  return ends;
}

// Returns how many of the sorted `times` are before `ns`.
int64_t Before(const std::vector<int64_t>& times, int64_t ns) {
  return std::ranges::lower_bound(times, ns) - times.begin();
}

// Adds the pass's backward nodes: those that run after the last forward pass
// before the first collective and before the next forward pass.
void AddBackward(const Trace& trace, const std::vector<int64_t>& forwards,
                 Span step, int64_t issued_ns, GradientPass& pass) {
  const int64_t count = Before(forwards, issued_ns);
  int64_t from = step.begin_ns, to = step.end_ns;
  if (count > 0) from = std::max(from, forwards[count - 1]);
  if (count < static_cast<int64_t>(forwards.size())) {
    to = std::min(to, forwards[count]);
  }
  auto it = std::ranges::lower_bound(trace.ops(), from, {}, &Op::begin_ns);
  bool first = true;
  for (; it != trace.ops().end() && it->begin_ns < to; ++it) {
    if (it->kind != OpKind::kBackward ||
        (it->parent != kNone &&
         trace.ops()[it->parent].kind == OpKind::kBackward)) {
      continue;
    }
    if (first) pass.backward = {it->begin_ns, it->end_ns};
    first = false;
    pass.backward.end_ns = std::max(pass.backward.end_ns, it->end_ns);
    if (trace.name(it->name).find("AccumulateGrad") != std::string_view::npos) {
      pass.parameters.push_back(static_cast<RowId>(it - trace.ops().begin()));
    }
  }
}

}  // namespace

bool Trains(const Trace& trace) {
  return std::ranges::any_of(
      trace.ops(), [](const Op& op) { return op.kind == OpKind::kBackward; });
}

bool OnlyInfers(const AnalysisContext& context) {
  return context.trace.watched(Kind::kOp) && !Trains(context.trace) &&
         context.parts.optimizer.spans.empty();
}

// Passes are told apart by their collectives: a new pass begins with each step,
// after an optimizer update, and after another forward pass.
std::vector<GradientPass> FindGradientPasses(
    const Trace& trace, const OpTree& tree, const Steps& steps,
    const std::vector<Collective>& collectives) {
  std::vector<bool> steady(steps.windows.size());
  for (size_t i : steps.steady) steady[i] = true;
  std::vector<size_t> order;
  for (size_t i = 0; i < collectives.size(); ++i) {
    const Collective& one = collectives[i];
    if (one.gradient && one.step != kNoStep && steady[one.step]) {
      order.push_back(i);
    }
  }
  if (order.empty()) return {};
  std::ranges::stable_sort(
      order, {}, [&](size_t i) { return collectives[i].issued.begin_ns; });
  const std::vector<int64_t> forwards = ForwardTimes(trace, tree, steps.thread);
  const std::vector<int64_t> updates = OptimizerEnds(trace);

  std::vector<GradientPass> passes;
  int64_t last_forwards = -1;
  for (size_t i : order) {
    const Collective& one = collectives[i];
    const int64_t ns = one.issued.begin_ns;
    const int64_t forwards_before = Before(forwards, ns);
    // Passes between the same two updates accumulate gradients. Without
    // recorded updates, each step counts as one update.
    const int64_t update =
        updates.empty() ? static_cast<int64_t>(one.step) : Before(updates, ns);
    if (passes.empty() || passes.back().step != one.step ||
        passes.back().update != update || forwards_before != last_forwards) {
      passes.push_back({.step = one.step, .update = update});
      AddBackward(trace, forwards, steps.windows[one.step].host, ns,
                  passes.back());
      last_forwards = forwards_before;
    }
    GradientPass& pass = passes.back();
    pass.collectives.push_back(i);
    if (one.bytes < 0) pass.sizes_known = false;
    pass.bytes += std::max<int64_t>(one.bytes, 0);
  }
  return passes;
}

double BestBusBandwidth(const std::vector<Collective>& collectives,
                        int32_t world_size) {
  return BestOf(collectives, world_size, kBigBytes);
}

BusBandwidth LikelyBusBandwidth(const Trace& trace,
                                const std::vector<Collective>& collectives) {
  const int32_t ranks = trace.run().world_size;
  const double seen = BestBusBandwidth(collectives, ranks);
  if (seen > 0) return {seen, true};
  // Latency limits small collectives, so the bandwidth they reach is a lower
  // bound.
  const double small = BestOf(collectives, ranks, 1);
  return {small > 0 ? std::max(small, 1e9 * DeviceBusRate(trace)) : 0, false};
}

double TransferNs(const Collective& one, double bandwidth, int32_t world_size) {
  const int32_t ranks = one.group_size > 0 ? one.group_size : world_size;
  if (one.bytes < 0 || bandwidth <= 0 || ranks < 1) return -1;
  return std::min<double>(
      one.moved.length(),
      one.bytes * BusFactor(one.kind, ranks) / bandwidth * 1e9);
}

}  // namespace stepscope
