// The groups of ranks that communicate with each other: what each serves, what
// it costs, and the pipelines among them.
#pragma once

#include <stepscope/ranks.h>

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "ranks/matched_collectives.h"

namespace stepscope {

// Data on their way: over the slowest link, as nccl-tests count them.
struct BusTransfer {
  double bytes = 0;
  double ns = 0;
  BusTransfer& operator+=(const BusTransfer& other) {
    bytes += other.bytes;
    ns += other.ns;
    return *this;
  }
  double GbPerS() const { return ns > 0 ? bytes / ns : 0; }
};

// Adds up the collectives of each group.
class GroupTotals {
 public:
  // `offsets` of the clocks, in ns, by index of `ranks`; both must outlive it.
  GroupTotals(const std::vector<RankDigest>& ranks,
              const std::vector<double>& offsets);
  // A matched collective makes its ranks wait `waiting_ms` together. The rank
  // `last` (an index; -1 if they arrive together) arrives at `arrival_ns`, on
  // the aligned clock after ranks[0].collectives[0].begin_ns. Returns what was
  // transferred since then; nothing if it shows no rate.
  BusTransfer AddWait(const MatchedCollective& collective, double waiting_ms,
                      int64_t last, double arrival_ns);
  // Of a RankCollective's group: which row it belongs to; SIZE_MAX if unknown.
  size_t IndexOf(uint64_t group) const;
  // By index.
  std::vector<RankGroupRow> Rows() const;

 private:
  struct Totals {
    RankGroupRow row;
    std::map<std::string, int64_t> kinds;  // how often, without integers
    int64_t gradients = 0, count = 0;
    bool shards = false;
    BusTransfer moved;
    std::map<size_t, int64_t> last;  // by index of the rank
    std::map<size_t, double> steps;  // of each rank
  };
  const std::vector<RankDigest>& ranks_;
  const std::vector<double>& offsets_;
  std::vector<Totals> totals_;
  std::unordered_map<uint64_t, size_t> by_group_;
  std::unordered_map<uint64_t, double> bus_factors_;
};

// Sorts the groups, the longest exposed first, and drops those beyond 1000.
void LimitGroups(std::vector<RankGroupRow>& rows);

// The pipelines of which all ranks were recorded. Marks their ranks in
// `comparison.rows`, which are sorted by rank. REQUIRES: comparison.groups.
std::vector<PipelineRow> PipelinesOf(const std::vector<RankDigest>& ranks,
                                     RankComparison& comparison);

// What a group serves by the words of its description ("mesh_tp",
// "TENSOR_MODEL_PARALLEL_GROUP"); "" if they do not say.
const char* ParallelismOf(const std::string& description);

}  // namespace stepscope
