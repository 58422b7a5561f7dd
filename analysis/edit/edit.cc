#include "edit/edit.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace stepscope {
namespace {

// Adds `more` to `into`, and leaves `into` sorted and without duplicates.
template <typename T>
void Union(std::vector<T>& into, const std::vector<T>& more) {
  into.insert(into.end(), more.begin(), more.end());
  std::ranges::sort(into);
  into.erase(std::unique(into.begin(), into.end()), into.end());
}

// Adds the cuts of `more` to `into`. A span that both cut is cut once, to the
// shorter of the two.
void AddCuts(std::vector<HostCut>& into, const std::vector<HostCut>& more) {
  if (more.empty()) return;
  using Place = std::tuple<RowId, int64_t, int64_t>;
  const auto place = [](const HostCut& cut) {
    return Place(cut.thread, cut.span.begin_ns, cut.span.end_ns);
  };
  std::map<Place, size_t> known;
  for (size_t i = 0; i < into.size(); ++i) known.emplace(place(into[i]), i);
  for (const HostCut& cut : more) {
    const auto same = known.find(place(cut));
    if (same == known.end()) {
      into.push_back(cut);
    } else {
      HostCut& one = into[same->second];
      one.keep_ns = std::min(one.keep_ns, cut.keep_ns);
    }
  }
}

// Adds `more` to `into`. An activity in both keeps the start that `into` gives
// it.
void AddEarlyStarts(std::vector<EarlyStart>& into,
                    const std::vector<EarlyStart>& more) {
  if (more.empty()) return;
  into.insert(into.end(), more.begin(), more.end());
  std::ranges::stable_sort(into, {}, &EarlyStart::activity);
  into.erase(std::unique(into.begin(), into.end(),
                         [](const EarlyStart& a, const EarlyStart& b) {
                           return a.activity == b.activity;
                         }),
             into.end());
}

// Returns the scales of both; for an activity in both, the smaller factor.
std::vector<ActivityScale> United(const std::vector<ActivityScale>& a,
                                  const std::vector<ActivityScale>& b) {
  const auto before = [](const ActivityScale& x, const ActivityScale& y) {
    return x.activity != y.activity ? x.activity < y.activity
                                    : x.factor < y.factor;
  };
  // They are usually sorted already, because rules go through a table from its
  // first row on, and a plan unites edits one after the other.
  const auto in_order = [&](const std::vector<ActivityScale>& scales,
                            std::vector<ActivityScale>& copy)
      -> const std::vector<ActivityScale>& {
    if (std::ranges::is_sorted(scales, before)) return scales;
    copy = scales;
    std::ranges::sort(copy, before);
    return copy;
  };
  std::vector<ActivityScale> of_a, of_b, both;
  both.resize(a.size() + b.size());
  std::ranges::merge(in_order(a, of_a), in_order(b, of_b), both.begin(),
                     before);
  // Sorted by factor within an activity, so unique() keeps the smallest.
  both.erase(std::unique(both.begin(), both.end(),
                         [](const ActivityScale& x, const ActivityScale& y) {
                           return x.activity == y.activity;
                         }),
             both.end());
  return both;
}

}  // namespace

Edit Combine(Edit a, const Edit& b) {
  if (b == Edit()) return a;
  if (b.workers >= 0) a.workers = b.workers;
  if (b.threads > 0) a.threads = b.threads;
  if (b.batch != 1) a.batch = b.batch;
  a.channels_last |= b.channels_last;
  a.drop_zero_grad |= b.drop_zero_grad;
  a.drop_unused_graph |= b.drop_unused_graph;
  a.drop_anomaly |= b.drop_anomaly;
  if (b.fused_update >= 0) a.fused_update = b.fused_update;
  if (b.dispatch_ns >= 0) a.dispatch_ns = b.dispatch_ns;
  // Lists are united, so that edits of several findings add up.
  Union(a.no_wait, b.no_wait);
  Union(a.side_stream, b.side_stream);
  Union(a.overlapped, b.overlapped);
  Union(a.no_dependency, b.no_dependency);
  AddEarlyStarts(a.early, b.early);
  AddCuts(a.cuts, b.cuts);
  a.scales = United(a.scales, b.scales);
  return a;
}

}  // namespace stepscope
