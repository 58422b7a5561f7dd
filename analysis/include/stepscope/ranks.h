// Many ranks: one run out of the Traces of its ranks. A rank is digested while
// its Trace is in memory; what the comparison needs of it is small, so any
// number of ranks can be compared.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// One collective of one rank, under a key that it shares with the other ranks.
struct RankCollective {
  int64_t step = -1;    // as the loop counts
  uint64_t group = 0;   // hash of its group, kind and whether it moves integers
  int32_t ordinal = 0;  // among those of the step and the group
  bool ends_together = false;  // on all ranks, by what it does
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t exposed_ns = 0;
};

struct RankDigest {
  Report report;                            // of this rank alone
  std::vector<RankCollective> collectives;  // of steady steps
  // Hash of the shapes of all inputs, by step; empty if they were not recorded.
  std::vector<std::pair<int64_t, uint64_t>> step_shapes;
  // The host's own time per steady step, without what it waited for the device
  // or for other ranks; -1 if unknown.
  double host_ms = -1;
  // Two standard errors of the mean step.
  double noise_ms = 0;
  // The same of host_ms, which may be a mean over fewer steps.
  double host_noise_ms = 0;
};

// Thread-safe for one const Trace.
RankDigest DigestRank(const Trace& trace);

// One report for the run. Report::ranks says what came of comparing; where its
// why_not is not empty (a file does not name its rank, two name the same, no
// collective is in all), the ranks have nothing in common and only its rows are
// filled.
Report AnalyzeRanks(const std::vector<RankDigest>& ranks);

}  // namespace stepscope
