// Writes the traces of a run's ranks as one timeline.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace stepscope {

struct MergedTimeline {
  size_t ranks = 0;
  int64_t collectives = 0;  // collectives joined by arrows
  // How much the aligned clocks still disagree; -1 if they are as recorded.
  double residual_us = -1;
  std::string why_not;  // why the clocks are as recorded; empty if aligned
};

// Writes the trace files `paths` into the Chrome trace `out`. For each
// collective of the steady steps, arrows lead from every member to the one that
// came last. Reads each file twice and holds only a few at a time. `on_error`
// gets a line for each file that cannot be read and is left out. Errors: a read
// error if no file can be read; write errors.
absl::StatusOr<MergedTimeline> WriteMergedTimeline(
    const std::vector<std::string>& paths, const std::string& out, bool advice,
    const std::function<void(const std::string&)>& on_error);

}  // namespace stepscope
