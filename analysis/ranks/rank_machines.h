// Compares the machines of the ranks: how fast they communicate inside each
// machine and between machines, and whether the others wait for the same
// machine again and again.
#pragma once

#include <stepscope/ranks.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ranks/matched_collectives.h"
#include "ranks/rank_groups.h"

namespace stepscope {

class MachineTotals {
 public:
  explicit MachineTotals(const std::vector<RankDigest>& ranks);
  // Adds a matched collective of the group with index `group`. `cause` is the
  // index of the rank that the others wait for; an invalid index means that all
  // arrive together. `waits_ms` is how long each member waits.
  void Add(const MatchedCollective& collective, size_t group, size_t cause,
           const std::vector<double>& waits_ms, const BusTransfer& transfer);
  // Returns a row per machine, the most waited for first; nothing if all ranks
  // are on one machine, or some machine is unknown. `steps`: how many steps
  // were compared.
  std::vector<MachineRow> Rows(int64_t steps) const;
  // Fills in `skewed`, `late_host` and `late_host_last`. `rows` are indexed by
  // group, as in Add().
  void NameLateHosts(std::vector<RankGroupRow>& rows) const;

 private:
  // How often the other machines wait for a machine, over collectives of
  // several machines whose ranks do not arrive together.
  struct Lateness {
    struct OfStep {
      int64_t skewed = 0, last = 0;
      // Expected value of `last` if each rank were equally often last.
      double by_chance = 0;
    };
    std::map<int64_t, OfStep> steps;
    void Add(int64_t step, bool is_last, double by_chance);
    int64_t skewed() const;
    int64_t last() const;
    bool IsNoChance() const;
  };
  struct Machine {
    MachineRow row;
    Lateness lateness;
    BusTransfer inside, across;
    // How long ranks of other machines wait for the ranks of this one.
    double waits_ms = 0;
  };

  const std::vector<RankDigest>& ranks_;
  bool known_ = false;              // several machines, all with names
  std::vector<size_t> machine_of_;  // by index of the rank
  std::vector<Machine> machines_;
  std::map<size_t, int64_t> skewed_;  // by index of the group
  std::map<size_t, std::map<size_t, Lateness>> groups_;  // [group][machine]
  // How many ranks of each machine take part in the current collective.
  std::vector<int64_t> members_;
};

}  // namespace stepscope
