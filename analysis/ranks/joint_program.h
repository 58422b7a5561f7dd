// The collectives of all ranks as programs that can be replayed together: what
// each rank does of its own, and how long the transfers take once all ranks are
// there. Made from the digests of the ranks.
#pragma once

#include <stepscope/ranks.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "ranks/matched_collectives.h"

namespace stepscope {

inline constexpr double kNeverNs = std::numeric_limits<double>::infinity();

// One collective on one rank. Times count the ns of this rank's own work: time
// in which it only waited is left out.
struct RankItem {
  size_t collective = 0;     // index into JointRun::transfers
  double ready = 0;          // when its data are ready
  double joined = kNeverNs;  // when the rank can do nothing more without it;
                             // kNeverNs: the rank never waits for it
};
using RankProgram = std::vector<RankItem>;

struct JointTransfer {
  size_t ranks = 0;
  int64_t step = 0;
  double ns = 0;             // duration once all ranks are there
  size_t before = SIZE_MAX;  // the neighbours in its process group
  size_t after = SIZE_MAX;
  double recorded_end = 0;
};

// All ranks together.
struct JointRun {
  std::vector<JointTransfer> transfers;
  std::vector<RankProgram> programs;  // by index of the rank
};

// For each collective of a rank: kind, whether of integers, and group size. Two
// ranks with the same shape run the same program, perhaps in different groups.
using ProgramShape = std::vector<std::tuple<std::string, bool, int32_t>>;

// What the digests of all ranks recorded. Valid while its arguments live.
class JointRecording {
 public:
  // `offsets` are the clock offsets in ns. REQUIRES: the first rank has a
  // collective.
  JointRecording(const std::vector<RankDigest>& ranks,
                 const std::vector<MatchedCollective>& matched,
                 const std::vector<double>& offsets);

  JointRun Make() const;
  ProgramShape ShapeOf(size_t r, const RankProgram& program) const;

 private:
  double At(size_t r, int64_t ns) const;
  const GroupTraffic* GroupOf(size_t r, uint64_t group) const;
  RankProgram ProgramOf(
      size_t r, const std::unordered_map<size_t, size_t>& matched) const;

  const std::vector<RankDigest>& ranks_;
  const std::vector<MatchedCollective>& matched_;
  const std::vector<double>& offsets_;
  int64_t base_ns_ = 0;
};

}  // namespace stepscope
