#include "merged_timeline.h"

#include <absl/status/status.h>
#include <stepscope/analysis.h>
#include <stepscope/ranks.h>
#include <stepscope/read.h>
#include <stepscope/timeline.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "digest.h"

namespace stepscope {
namespace {

struct RankToDraw {
  std::string path;
  RankDigest digest;
  int64_t clock_offset_ns = 0;
  std::vector<TimelineArrow> arrows;
};

// Returns the ranks that can be read, in the order of their numbers, because
// viewers take the end that comes first in the file as the start of an arrow.
std::vector<RankToDraw> ReadRanks(
    const std::vector<std::string>& paths, absl::Status& first_error,
    const std::function<void(const std::string&)>& on_error) {
  std::vector<absl::StatusOr<RankDigest>> digests = DigestAll(paths);
  std::vector<RankToDraw> ranks;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (digests[i].ok()) {
      ranks.push_back({.path = paths[i],
                       .digest = *std::move(digests[i]),
                       .clock_offset_ns = 0,
                       .arrows = {}});
      continue;
    }
    if (first_error.ok()) first_error = digests[i].status();
    const auto message = digests[i].status().message();
    on_error({message.data(), message.size()});
  }
  std::ranges::stable_sort(ranks, {}, [](const RankToDraw& rank) {
    return rank.digest.report.run.rank;
  });
  return ranks;
}

// Adds arrows from each member of a collective to the member that came last.
// Returns the number of collectives with arrows. Both ends must lie inside
// their events, so events that are too short get no arrow.
int64_t AddArrows(const std::vector<SharedCollective>& shared,
                  std::vector<RankToDraw>& ranks) {
  int64_t id = 0, joined = 0;
  for (const SharedCollective& collective : shared) {
    const auto begin_of = [&](const std::pair<size_t, size_t>& member) {
      const RankToDraw& rank = ranks[member.first];
      return rank.digest.collectives[member.second].begin_ns -
             rank.clock_offset_ns;
    };
    const auto last =
        *std::ranges::max_element(collective.members, {}, begin_of);
    const auto add = [&](const std::pair<size_t, size_t>& member, bool is_start,
                         int64_t at_ns) {
      RankToDraw& rank = ranks[member.first];
      const RankCollective& one = rank.digest.collectives[member.second];
      rank.arrows.push_back({.id = id,
                             .is_start = is_start,
                             .kernel = one.kernel,
                             .begin_ns = one.begin_ns,
                             .end_ns = one.end_ns,
                             .at_ns = at_ns});
    };
    const RankCollective& target =
        ranks[last.first].digest.collectives[last.second];
    // The event has no room for an end inside it.
    if (target.end_ns - target.begin_ns < 2) continue;
    ++joined;
    for (const auto& member : collective.members) {
      const RankCollective& from =
          ranks[member.first].digest.collectives[member.second];
      if (member == last || from.end_ns == from.begin_ns) continue;
      ++id;
      add(member, true, from.begin_ns);
      // A nanosecond later, so that the start comes first even if the ranks
      // begin at the same time.
      add(last, false, target.begin_ns + 1);
    }
  }
  return joined;
}

}  // namespace

absl::StatusOr<MergedTimeline> WriteMergedTimeline(
    const std::vector<std::string>& paths, const std::string& out, bool advice,
    const std::function<void(const std::string&)>& on_error) {
  absl::Status first_error = absl::OkStatus();
  std::vector<RankToDraw> ranks = ReadRanks(paths, first_error, on_error);
  if (ranks.empty()) return first_error;
  MergedTimeline merged;
  merged.ranks = ranks.size();
  std::vector<RankDigest> digests;
  digests.reserve(ranks.size());
  for (const RankToDraw& rank : ranks) digests.push_back(rank.digest);
  // Needed only for the clock offsets. What the ranks wait for is not drawn.
  const RankComparison comparison = AnalyzeRanks(digests).ranks;
  merged.why_not = comparison.why_not;
  if (merged.why_not.empty()) {
    merged.residual_us = comparison.clock_residual_us;
    std::map<int32_t, double> offset_us;
    for (const RankRow& row : comparison.rows)
      offset_us[row.rank] = row.clock_offset_us;
    for (RankToDraw& rank : ranks) {
      rank.clock_offset_ns =
          std::llround(offset_us[rank.digest.report.run.rank] * 1e3);
    }
    merged.collectives = AddArrows(SharedCollectives(digests), ranks);
  }
  auto writer = TimelineWriter::Make(out, merged.residual_us);
  if (!writer.ok()) return writer.status();
  // Read each trace a second time, one after the other, because all traces of a
  // job together may not fit into memory.
  for (const RankToDraw& rank : ranks) {
    const absl::StatusOr<Trace> trace = ReadTrace(rank.path);
    if (!trace.ok()) return trace.status();  // it was readable just now
    for (const Loss& loss : trace->losses()) {
      on_error(rank.path + ": " + loss.detail);
    }
    std::vector<Annotation> annotations;
    if (advice) annotations = ToAnnotations(rank.digest.report);
    const int32_t number = trace->run().rank;
    (*writer)->Add(
        *trace,
        {.name = number < 0 ? rank.path : "rank " + std::to_string(number),
         .clock_offset_ns = rank.clock_offset_ns,
         .annotations = annotations,
         .arrows = rank.arrows});
  }
  const absl::Status closed = (*writer)->Close();
  if (!closed.ok()) return closed;
  return merged;
}

}  // namespace stepscope
