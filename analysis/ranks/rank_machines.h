// The machines of the ranks: how fast they communicate inside each and with the
// others, and whether the others wait for the same one again and again.
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
  // A matched collective of the group with this index. Its ranks arrive apart
  // if `cause` is one, an index of `ranks`: the rank that they wait for.
  // `waits_ms` is what each of its members waits.
  void Add(const MatchedCollective& collective, size_t group, size_t cause,
           const std::vector<double>& waits_ms, const BusTransfer& transfer);
  // The one that is waited for most first; none if all ranks are on one
  // machine, or a machine is unknown. `steps`: how many were compared.
  std::vector<MachineRow> Rows(int64_t steps) const;
  // Fills in `skewed`, `late_host` and `late_host_last`. `rows` are by index of
  // the group.
  void NameLateHosts(std::vector<RankGroupRow>& rows) const;

 private:
  // How often a machine is waited for, where ranks of several arrive apart.
  struct Lateness {
    struct OfStep {
      int64_t skewed = 0, last = 0;
      double by_chance = 0;  // of `last`, if each rank were last as often
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
    double waits_ms = 0;  // of ranks of other machines for its ranks
  };

  const std::vector<RankDigest>& ranks_;
  bool known_ = false;              // there are several
  std::vector<size_t> machine_of_;  // by index of the rank
  std::vector<Machine> machines_;
  std::map<size_t, int64_t> skewed_;  // by index of the group
  std::map<size_t, std::map<size_t, Lateness>> groups_;  // and of the machine
  std::vector<int64_t> members_;  // of one collective, by index of the machine
};

}  // namespace stepscope
