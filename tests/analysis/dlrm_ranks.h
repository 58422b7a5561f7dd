// The eight ranks of dlrm_v100_8ranks, a recorded run.
#pragma once

#include <gtest/gtest.h>
#include <stepscope/ranks.h>
#include <stepscope/read.h>

#include <string>
#include <vector>

#include "support/real_trace_path.h"

namespace stepscope {

// Returns an empty vector if the traces are missing.
inline std::vector<RankDigest> DlrmDigests() {
  std::vector<RankDigest> digests;
  for (int rank = 0; rank < 8; ++rank) {
    const std::string path = RealTracePath("dlrm_v100_8ranks/rank" +
                                           std::to_string(rank) + ".json.gz");
    if (path.empty()) return {};
    const absl::StatusOr<Trace> trace = ReadTrace(path);
    EXPECT_TRUE(trace.ok());
    if (trace.ok()) digests.push_back(DigestRank(*trace));
  }
  return digests;
}

}  // namespace stepscope
