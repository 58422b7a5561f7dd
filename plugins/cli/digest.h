// Reads and analyses many traces at once.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/page.h>
#include <stepscope/ranks.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// Facts about the recording's machine, given by the user; -1: not given.
struct ToldMachine {
  int32_t cores = -1;
  int32_t threads = -1;  // per op on the CPU
};

// The page's details of one rank, in addition to its report.
struct DrawnRank {
  int32_t wanted = -1;  // the rank; negative: the lowest of all
  bool found = false;   // set by DigestAll()
  PageDetails details = {};
};

// Returns, in the order of `paths`, the digest of each file or an error: that
// of ReadTrace(), ResourceExhausted if memory ran out (possibly only for that
// Trace), or InvalidArgument for a Trace without events. There are as many
// threads as cores, and each holds one Trace at a time. Memory therefore grows
// with the number of threads; with the number of ranks only digests grow. If
// `drawn` is not null, it is filled, too.
std::vector<absl::StatusOr<RankDigest>> DigestAll(
    const std::vector<std::string>& paths, const ToldMachine& machine = {},
    DrawnRank* drawn = nullptr);

}  // namespace stepscope
