#include "turns.h"

namespace stepscope::bench {

std::vector<std::vector<double>> AddedNs(
    std::span<const Recorder> recorders, const RecordOptions& options,
    int rounds, const std::function<double()>& ns_per_event) {
  std::vector<Recorder> turns = {Recorder::kNothing};
  turns.insert(turns.end(), recorders.begin(), recorders.end());
  std::vector<std::vector<double>> added(recorders.size());
  std::vector<double> ns(turns.size());
  for (int round = -1; round < rounds; ++round) {
    for (size_t i = 0; i < turns.size(); ++i) {
      // Each round starts with a different recorder, so that none is always
      // first.
      const size_t at = (i + static_cast<size_t>(round + 1)) % turns.size();
      const auto scope = Start(turns[at], options);
      ns[at] = ns_per_event();
    }
    if (round < 0) continue;
    for (size_t i = 0; i < added.size(); ++i) {
      added[i].push_back(ns[i + 1] - ns[0]);
    }
  }
  return added;
}

}  // namespace stepscope::bench
