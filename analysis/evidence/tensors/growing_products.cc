#include "evidence/tensors/growing_products.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/op_traits.h"

namespace stepscope {
namespace {

// One iteration of a loop whose products get more rows each time.
struct Iteration {
  int64_t rows = 0;
  Span span = {};
};

double ComputingNs(const AnalysisContext& m, Span span) {
  double ns = 0;
  for (RowId row : m.tree.of_thread(m.steps.thread, span)) {
    const Op& op = m.trace.ops()[row];
    if (!m.tree.computes(row) ||
        (op.parent != kNone && m.tree.computes(op.parent))) {
      continue;
    }
    ns += static_cast<double>(op.end_ns - op.begin_ns);
  }
  return std::min(ns, static_cast<double>(span.length()));
}

Growth Measured(const AnalysisContext& m, std::span<const Iteration> list) {
  Growth growth{.span = {list.front().span.begin_ns, list.back().span.end_ns},
                .iterations = list.size(),
                .first = {list.front().rows},
                .last = {list.back().rows}};
  const double share = static_cast<double>(list[1].rows - list[0].rows) /
                       static_cast<double>(list.front().rows);
  std::vector<double> host, calling, device(list.size());
  std::vector<size_t> with_backward;
  for (size_t i = 0; i < list.size(); ++i) {
    const int64_t end_ns =
        i + 1 < list.size() ? list[i + 1].span.begin_ns : list[i].span.end_ns;
    const Span span{list[i].span.begin_ns, end_ns};
    double ns = static_cast<double>(span.length());
    for (RowId node : m.backward.Of(m.steps.thread, span)) {
      const Op& op = m.trace.ops()[node];
      ns += static_cast<double>(op.end_ns - op.begin_ns);
      if (with_backward.empty() || with_backward.back() != i) {
        with_backward.push_back(i);
      }
    }
    host.push_back(ns);
    calling.push_back(ns - ComputingNs(m, span));
  }
  for (const KernelUse& use : m.kernels.uses) {
    const RowId op = m.trace.kernels()[use.kernel].op;
    if (op == kNone) continue;
    const auto after = std::ranges::upper_bound(
        list, m.trace.ops()[op].begin_ns, {},
        [](const Iteration& one) { return one.span.begin_ns; });
    if (after == list.begin() ||
        m.trace.ops()[op].begin_ns >= growth.span.end_ns) {
      continue;
    }
    device[static_cast<size_t>(after - list.begin()) - 1] += use.ns;
  }
  growth.trains = 2 * with_backward.size() > list.size();
  // A loop that only generates may be followed by a training pass over
  // everything that it generated, with as many rows as the last iteration.
  for (size_t i : with_backward) {
    if (growth.trains) break;
    const size_t usual = i > 0 ? i - 1 : i + 1;
    host[i] = host[usual];
    calling[i] = calling[usual];
    device[i] = device[usual];
  }
  // In training, one pass over all positions takes as long as the longest
  // iteration. Otherwise each iteration takes at least the time of calling
  // its ops, plus the new rows' share of the computing of the shortest
  // iteration.
  const auto saved = [&](const std::vector<double>& times, double least) {
    double sum = 0;
    for (double ns : times) sum += ns;
    return growth.trains ? sum - std::ranges::max(times)
                         : sum - least * static_cast<double>(times.size());
  };
  const double called = std::ranges::min(calling);
  growth.ns =
      saved(host, called + std::min(1.0, share) *
                               std::max(0.0, std::ranges::min(host) - called));
  growth.ns = std::max(growth.ns, saved(device, std::min(1.0, share) *
                                                    std::ranges::min(device)));
  return growth;
}

// Returns the longest part of `list` whose rows grow by the same number each
// time.
std::optional<Growth> LongestOf(const AnalysisContext& m,
                                std::span<const Iteration> list) {
  size_t begin = 0, from = 0, count = 0;
  const auto grows = [&](size_t i) { return list[i].rows - list[i - 1].rows; };
  for (size_t i = 1; i < list.size(); ++i) {
    if (grows(i) <= 0) {
      begin = i;
    } else if (i - begin >= 2 && grows(i) != grows(i - 1)) {
      // If the difference changes, the last two may start a new series.
      begin = i - 1;
    }
    if (i + 1 - begin > count) {
      count = i + 1 - begin;
      from = begin;
    }
  }
  if (count < kLeastGrowing) return {};
  return Measured(m, list.subspan(from, count));
}

}  // namespace

std::optional<Growth> GrowingProducts(const AnalysisContext& m,
                                      std::span<const RowId> rows) {
  std::map<std::tuple<NameId, int64_t, int64_t>, std::vector<Iteration>>
      by_weights;
  for (RowId row : rows) {
    if (!m.tree.traits(row).matmul || !m.tree.computes(row)) continue;
    const Op& op = m.trace.ops()[row];
    const MatmulShape shape = CostOf(m.trace, row).matmul;
    // A batched product multiplies activations. Attention scores grow with
    // the length even if earlier keys are kept.
    if (shape.m <= 0 || shape.batch != 1) continue;
    auto& list = by_weights[{op.name, shape.n, shape.k}];
    if (list.empty() || list.back().rows != shape.m) {
      list.push_back({shape.m, {op.begin_ns, op.end_ns}});
    }
    list.back().span.end_ns = op.end_ns;
  }
  std::optional<Growth> best;
  for (const auto& [weights, list] : by_weights) {
    std::optional<Growth> one = LongestOf(m, list);
    if (one && (!best || one->span.length() > best->span.length())) {
      best = std::move(one);
    }
  }
  return best;
}

}  // namespace stepscope
