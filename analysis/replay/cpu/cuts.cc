#include "replay/cpu/cuts.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

namespace stepscope {
namespace {

// A time span, and the share of its work that remains after the cuts.
struct Kept {
  Span span;
  double left = 1;
};

// Returns the cuts as disjoint spans in time order. Where several cuts overlap,
// the one that leaves least counts, which is the first element of the multiset.
std::vector<Kept> Disjoint(const std::vector<HostCut>& cuts) {
  struct Edge {
    int64_t time_ns = 0;
    bool begins = false;
    double left = 1;
  };
  std::vector<Edge> edges;
  for (const HostCut& cut : cuts) {
    if (cut.span.length() <= 0) continue;
    const double left = cut.keep_ns / static_cast<double>(cut.span.length());
    if (left >= 1) continue;
    edges.push_back({cut.span.begin_ns, true, left});
    edges.push_back({cut.span.end_ns, false, left});
  }
  std::ranges::sort(edges, {}, &Edge::time_ns);
  std::vector<Kept> kept;
  std::multiset<double> open;
  int64_t since_ns = 0;
  for (const Edge& edge : edges) {
    if (!open.empty() && edge.time_ns > since_ns) {
      kept.push_back({{since_ns, edge.time_ns}, *open.begin()});
    }
    since_ns = edge.time_ns;
    if (edge.begins) {
      open.insert(edge.left);
    } else {
      open.erase(open.find(edge.left));
    }
  }
  return kept;
}

// The share of `span` that remains.
double LeftOf(const std::vector<Kept>& kept, const Span& span) {
  if (span.length() <= 0) return 1;
  double removed = 0;
  auto it = std::ranges::upper_bound(
      kept, span.begin_ns, {}, [](const Kept& one) { return one.span.end_ns; });
  for (; it != kept.end() && it->span.begin_ns < span.end_ns; ++it) {
    const int64_t both = std::min(it->span.end_ns, span.end_ns) -
                         std::max(it->span.begin_ns, span.begin_ns);
    removed += (1 - it->left) * static_cast<double>(both);
  }
  return 1 - removed / static_cast<double>(span.length());
}

}  // namespace

std::vector<std::vector<Work>> WithCuts(const CpuProgram& program,
                                        const std::vector<HostCut>& cuts) {
  if (cuts.empty()) return {};
  const std::vector<Kept> kept = Disjoint(cuts);
  std::vector<std::vector<Work>> steps = program.steps;
  for (std::vector<Work>& step : steps) {
    for (Work& work : step) {
      if (work.kind == WorkKind::kLoader) continue;
      const double left = LeftOf(kept, work.span);
      work.ns *= left;
      work.grows_ns *= left;
      if (left <= 0) work.ops = 0;
    }
  }
  return steps;
}

}  // namespace stepscope
