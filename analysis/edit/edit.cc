#include "edit/edit.h"

#include <algorithm>

namespace stepscope {
namespace {

// Afterwards `into` is sorted and has no duplicates.
template <typename T>
void Union(std::vector<T>& into, const std::vector<T>& more) {
  into.insert(into.end(), more.begin(), more.end());
  std::ranges::sort(into);
  into.erase(std::unique(into.begin(), into.end()), into.end());
}

}  // namespace

Edit Combine(const Edit& a, const Edit& b) {
  Edit both = a;
  if (b.workers >= 0) both.workers = b.workers;
  if (b.threads > 0) both.threads = b.threads;
  if (b.batch != 1) both.batch = b.batch;
  both.channels_last |= b.channels_last;
  both.drop_zero_grad |= b.drop_zero_grad;
  both.drop_unused_graph |= b.drop_unused_graph;
  both.drop_anomaly |= b.drop_anomaly;
  if (b.fused_update >= 0) both.fused_update = b.fused_update;
  if (b.dispatch_ns >= 0) both.dispatch_ns = b.dispatch_ns;
  // Lists are united, so that edits of several findings add up.
  Union(both.no_wait, b.no_wait);
  Union(both.side_stream, b.side_stream);
  Union(both.overlapped, b.overlapped);
  Union(both.no_dependency, b.no_dependency);
  both.cuts.insert(both.cuts.end(), b.cuts.begin(), b.cuts.end());

  both.scales.insert(both.scales.end(), b.scales.begin(), b.scales.end());
  std::ranges::sort(both.scales,
                    [](const ActivityScale& x, const ActivityScale& y) {
                      return x.activity != y.activity ? x.activity < y.activity
                                                      : x.factor < y.factor;
                    });
  // Sorted by factor within an activity, so unique() keeps the smallest.
  both.scales.erase(
      std::unique(both.scales.begin(), both.scales.end(),
                  [](const ActivityScale& x, const ActivityScale& y) {
                    return x.activity == y.activity;
                  }),
      both.scales.end());
  return both;
}

}  // namespace stepscope
