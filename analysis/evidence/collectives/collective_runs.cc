#include "evidence/collectives/collective_runs.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "evidence/launches.h"
#include "ops/contains.h"
#include "ops/op_traits.h"

namespace stepscope {
namespace {

// True if the collective belongs to an autograd node that computes with its
// result, such as the statistics of a SyncBatchNorm. The result is then needed
// at once, so the collective cannot be merged with a later one.
bool FeedsANode(const AnalysisContext& m, const Collective& one) {
  const RowId node = NodeAround(m.trace, one.op);
  return node != kNone &&
         !Contains(m.trace.name(m.trace.ops()[node].name), "AccumulateGrad");
}

using RunKey = std::tuple<size_t, CollectiveKind, NameId, bool, int64_t>;

RunKey KeyOf(const AnalysisContext& m, const Collective& one) {
  return {one.step, one.kind, one.group, one.integer,
          m.trace.kernels()[one.kernel].stream};
}

std::vector<std::vector<size_t>> RunsOf(const AnalysisContext& m,
                                        bool gradients) {
  const std::vector<int64_t> products = LaunchesOfProducts(m);
  const auto issued = [&](size_t i) {
    const Collective& one = m.collectives[i];
    return one.issued.length() > 0 ? one.issued.begin_ns : one.moved.begin_ns;
  };
  std::vector<size_t> order;
  for (size_t i = 0; i < m.collectives.size(); ++i) {
    const Collective& one = m.collectives[i];
    // Leave out collectives of known size: other rules judge these by their
    // size.
    if (one.kernel != kNone && one.bytes < 0 && one.step != kNoStep &&
        std::ranges::binary_search(m.steps.steady, one.step) &&
        (gradients || !one.gradient) && !FeedsANode(m, one) &&
        // What runs between the nodes of a graph is not known.
        !InGraph(m.trace, {ActivityTable::kKernel, one.kernel})) {
      order.push_back(i);
    }
  }
  std::ranges::stable_sort(order, {}, issued);
  std::map<RunKey, std::vector<size_t>> open;
  std::vector<std::vector<size_t>> runs;
  for (size_t i : order) {
    std::vector<size_t>& run = open[KeyOf(m, m.collectives[i])];
    // Products between gradients do not end a run, because the gradients of one
    // pass do not depend on each other.
    if (!run.empty() && !m.collectives[i].gradient) {
      const auto next = std::ranges::lower_bound(products, issued(run.back()));
      if (next != products.end() && *next < issued(i)) {
        runs.push_back(std::move(run));
        run.clear();
      }
    }
    run.push_back(i);
  }
  for (auto& [key, run] : open) runs.push_back(std::move(run));
  return runs;
}

}  // namespace

// One call in place of many saves the launches, and all exposed times but the
// longest.
CollectiveRuns FindRuns(const AnalysisContext& m, size_t many, bool gradients) {
  CollectiveRuns all;
  std::map<size_t, size_t> by_step;
  std::map<CollectiveKind, double> kinds;
  for (const std::vector<size_t>& run : RunsOf(m, gradients)) {
    if (run.size() < 2) continue;
    double sum = 0, longest = 0;
    for (size_t i : run) {
      const Collective& one = m.collectives[i];
      const auto ns = static_cast<double>(one.exposed_ns);
      sum += ns + static_cast<double>(one.issued.length());
      longest = std::max(longest, ns);
      all.members.insert(i);
    }
    const Collective& first = m.collectives[run[0]];
    by_step[first.step] += run.size() - 1;
    kinds[first.kind] += sum;
    all.collectives += static_cast<double>(run.size());
    all.bound_ns += sum - longest;
    ++all.runs;
  }
  for (const auto& [step, spare] : by_step) {
    all.steps += spare >= many;
  }
  const auto steps = static_cast<double>(m.steps.steady.size());
  for (double* sum : {&all.collectives, &all.runs, &all.bound_ns}) {
    *sum /= steps;
  }
  if (!kinds.empty()) {
    all.kind = std::ranges::max_element(kinds, {}, [](const auto& entry) {
                 return entry.second;
               })->first;
  }
  return all;
}

}  // namespace stepscope
