// One report for a run of several ranks, made from the Traces of its ranks.
// Each rank is digested while its Trace is in memory. A digest is small, so the
// number of ranks is not limited by memory.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace stepscope {

// One collective on one rank. Equal (step, group, ordinal) on several ranks
// means the same collective.
struct RankCollective {
  int64_t step = -1;    // the number of its step
  uint64_t group = 0;   // hash of process group, kind, and whether the data are
                        // integers
  int32_t ordinal = 0;  // its position among those of this step and group
  // True for the kinds that end on all ranks at the same time (all-reduce,
  // all-gather, reduce-scatter, all-to-all).
  bool ends_together = false;
  RowId kernel = kNone;  // of kernels(); kNone on a CPU-only run
  int64_t begin_ns = 0;  // on this rank's clock
  int64_t end_ns = 0;
  int64_t exposed_ns = 0;  // the part of its time in which nothing computes
  int64_t bytes = -1;      // of its buffer; -1 unknown
  // For how long before `begin_ns` this rank had its data ready while an
  // earlier collective occupied the stream.
  int64_t queued_ns = 0;
  // For how long before `end_ns` this rank had nothing left to do but wait for
  // the collective; 0 if it never waited.
  int64_t stalled_ns = 0;
};

// The collectives of one kind in one group of ranks.
struct GroupTraffic {
  uint64_t group = 0;     // as in RankCollective
  std::string name = {};  // of the process group; "": unknown, here and below
  std::string description = {};  // "default_pg", "mesh_tp"
  std::string members = {};      // its ranks as recorded, "[0, 1]"
  int32_t size = -1;
  std::string kind = {};  // "all-reduce", "point-to-point"
  bool is_integer = false;
  bool shards = false;    // of a program that shards its parameters
  double bus_factor = 0;  // bytes over the slowest link per byte of the buffer
  // Counts over the steady steps.
  int64_t count = 0;
  int64_t gradients = 0;  // all-reduces of gradients
  int64_t sent = 0;       // messages sent, of point-to-point
  int64_t received = 0;
};

// Limits of a digest. (The report's lists have their own limits, see
// stepscope/report.h.) 20,000 collectives are enough for ten steps with 2,000
// each. Beyond that, whole steps are dropped from the end, and a Loss
// "collectives-cut" says so.
inline constexpr size_t kMostRankCollectives = 20'000;
inline constexpr size_t kMostRankSteps = 1'000;

// What AnalyzeRanks() needs of one rank.
struct RankDigest {
  Report report;                            // of this rank alone
  std::vector<RankCollective> collectives;  // of the steady steps
  std::vector<GroupTraffic> groups;         // of `collectives`, each once
  // (step number, hash of all input shapes) of the first steady steps; empty if
  // shapes were not recorded.
  std::vector<std::pair<int64_t, uint64_t>> step_shapes;
  // Host time per steady step without waits for the device or for other ranks;
  // -1 if unknown.
  double host_ms = -1;
  // Noise of the mean step: two standard errors.
  double noise_ms = 0;
  // The same for host_ms, which may be a mean over fewer steps.
  double host_noise_ms = 0;
  double sm_clock_mhz = -1;  // mean of the samples of its device; -1 unknown
  double kernels = 0;        // per steady step, without collectives
  // Start of the only recorded step on this rank's clock; 0 unless there is
  // exactly one step.
  int64_t only_step_begin_ns = 0;
};

struct PageDetails;

// Analyses `trace` and returns what AnalyzeRanks() needs of it. `details`, if
// not null, receives what a page shows of this rank (stepscope/page.h). The
// largest part of a digest is report.path_slices, which only the drawings of
// that rank need: clear it to keep the digests of many ranks. Never fails.
// Threads: any number of calls may share one const Trace.
RankDigest DigestRank(const Trace& trace, PageDetails* details = nullptr);

// One collective on the ranks that took part.
struct SharedCollective {
  // Indices into the list of ranks, and into the `collectives` of that rank.
  std::vector<std::pair<size_t, size_t>> members;
};

// Returns the collectives that at least two ranks recorded, except where the
// ranks of a group disagree on how many there were in the step. Any thread.
std::vector<SharedCollective> SharedCollectives(
    const std::vector<RankDigest>& ranks);

// Returns the report of the whole run: times are means over the ranks, and each
// finding appears once. Empty if `ranks` is empty. Never fails: if the ranks
// cannot be compared (a file does not name its rank, two files name the same
// rank, or no collective was recorded on two ranks), Report::ranks.why_not says
// why, and Report::ranks has only its rows. If only shared collectives are
// missing, it also has the groups and pipelines. Any thread.
Report AnalyzeRanks(const std::vector<RankDigest>& ranks);

// Adds a Loss "missing-rank" to the report of a job for the ranks that it
// lacks. `missing` maps a rank to the reason, in words that continue "rank 3":
// "does not record". Ranks with the same reason share a Loss. Any thread.
void NameMissingRanks(const std::map<int32_t, std::string>& missing,
                      Report& report);

}  // namespace stepscope
