// Reads and analyses many traces at once.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/page.h>
#include <stepscope/ranks.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// What the user says about the machine of a recording; -1: nothing.
struct ToldMachine {
  int32_t cores = -1;
  int32_t threads = -1;  // per op on the CPU
};

// What a page shows of one rank beside the report.
struct DrawnRank {
  int32_t wanted = -1;  // the rank; negative: the lowest of all
  bool found = false;   // set by DigestAll()
  PageDetails details = {};
};

// The digest of each file, in the order of `paths`, or the error of
// ReadTrace(), or ResourceExhausted where memory ran out, also for that Trace
// alone, or InvalidArgument for a Trace without events. There are as many
// threads as cores, and each holds one Trace at a time: memory grows with the
// number of threads, and with the number of ranks only by their digests.
// `drawn`, if not null, is filled, too.
std::vector<absl::StatusOr<RankDigest>> DigestAll(
    const std::vector<std::string>& paths, const ToldMachine& machine = {},
    DrawnRank* drawn = nullptr);

}  // namespace stepscope
