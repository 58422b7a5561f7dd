#include "ranks/inherited_waits.h"

#include <algorithm>

namespace stepscope {
namespace {

// Waits that are kept per rank. Older ones are dropped, so after more waits
// than this between two collectives of a group the delay is underestimated.
// Both queries scan the list, so this also bounds their time.
constexpr size_t kMostWaits = 256;

}  // namespace

InheritedWaits::Delay InheritedWaits::Of(size_t rank, size_t group) const {
  const OfRank& of = ranks_[rank];
  const auto seen = of.seen.find(group);
  // Before the group's first collective nothing is known.
  if (seen == of.seen.end()) return {};
  Delay delay;
  double largest = 0;
  const size_t first = std::max(seen->second, of.dropped) - of.dropped;
  for (size_t i = first; i < of.waits.size(); ++i) {
    const Wait& wait = of.waits[i];
    if (wait.group == group) continue;
    delay.ns += wait.ns;
    if (wait.ns <= largest) continue;
    largest = wait.ns;
    delay.source = wait.source;
  }
  return delay;
}

InheritedWaits::Delay InheritedWaits::InStep(size_t rank, int64_t step,
                                             size_t group) const {
  Delay delay;
  double largest = 0;
  for (const Wait& wait : ranks_[rank].waits) {
    if (wait.step != step) continue;
    delay.ns += wait.ns;
    if (wait.group == group || wait.ns <= largest) continue;
    largest = wait.ns;
    delay.source = wait.source;
  }
  return delay;
}

void InheritedWaits::Add(size_t rank, int64_t step, size_t group, size_t source,
                         double ns) {
  OfRank& of = ranks_[rank];
  if (ns > 0) of.waits.push_back({step, group, source, ns});
  if (of.waits.size() > kMostWaits) {
    of.waits.pop_front();
    ++of.dropped;
  }
  of.seen[group] = of.dropped + of.waits.size();
}

}  // namespace stepscope
