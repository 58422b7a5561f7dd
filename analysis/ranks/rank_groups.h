// The groups of ranks that communicate with each other: what each group is for,
// what it costs, and which pipelines exist.
#pragma once

#include <stepscope/ranks.h>

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "ranks/matched_collectives.h"

namespace stepscope {

// A transfer. Bytes count what crosses the slowest link, as nccl-tests do ("bus
// bandwidth").
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
  // `offsets` are the clock offsets in ns, indexed like `ranks`. Both arguments
  // must outlive this object.
  GroupTotals(const std::vector<RankDigest>& ranks,
              const std::vector<double>& offsets);
  // Adds a matched collective, at which the ranks wait `waiting_ms` in total.
  // `last` is the index of the rank that arrives last (-1 if they arrive
  // together). It arrives at `arrival_ns`, on the aligned clock, counted from
  // ranks[0].collectives[0].begin_ns. Returns what was transferred from then
  // on; nothing if the collective shows no rate.
  BusTransfer AddWait(const MatchedCollective& collective, double waiting_ms,
                      int64_t last, double arrival_ns);
  // Returns the index of the row that a RankCollective's group belongs to;
  // SIZE_MAX if unknown.
  size_t IndexOf(uint64_t group) const;
  // The rows, in the order of IndexOf().
  std::vector<RankGroupRow> Rows() const;

 private:
  struct Totals {
    RankGroupRow row;
    std::map<std::string, int64_t> kinds;  // by kind, without integers
    int64_t gradients = 0, count = 0;
    bool shards = false;
    BusTransfer moved;
    std::map<size_t, int64_t> last;  // by index of the rank: how often last
    std::map<size_t, double> steps;  // by index of the rank: steps recorded
  };
  const std::vector<RankDigest>& ranks_;
  const std::vector<double>& offsets_;
  std::vector<Totals> totals_;
  std::unordered_map<uint64_t, size_t> by_group_;
  std::unordered_map<uint64_t, double> bus_factors_;
};

// Sorts the groups by exposed time, longest first, and keeps at most 1000.
void LimitGroups(std::vector<RankGroupRow>& rows);

// Returns the pipelines whose ranks were all recorded. Sets the stage of their
// ranks in comparison.rows. REQUIRES: comparison.rows are sorted by rank, and
// comparison.groups are filled in.
std::vector<PipelineRow> PipelinesOf(const std::vector<RankDigest>& ranks,
                                     RankComparison& comparison);

// Returns what a group is for, judged by the words of its description
// ("mesh_tp", "TENSOR_MODEL_PARALLEL_GROUP"); "" if they do not say.
const char* ParallelismOf(const std::string& description);

}  // namespace stepscope
