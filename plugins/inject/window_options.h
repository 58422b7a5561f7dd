// WindowOptions: which part of an unmodified program is recorded, and where the
// files go. Read from environment variables.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/schedule.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace stepscope {

struct WindowOptions {
  std::string log_dir;
  std::string name;  // the program's name in the report
  // If not empty: the NVTX range that marks a step ("name" or "name@domain"),
  // and `schedule` counts steps. If empty: the window is a span of time.
  std::string step_range;
  Schedule schedule;
  int64_t start_ms = 0;        // from the program's first NVTX or CUDA call
  int64_t duration_ms = 2000;  // or until the program ends
  bool print_report = true;
};

using Environment = std::function<const char*(const char*)>;

// Reads
//   STEPSCOPE_LOG_DIR      where to write; without it nothing is recorded
//   STEPSCOPE_NAME         instead of the program's own name
//   STEPSCOPE_STEP_RANGE   the range that is a step
//   STEPSCOPE_SCHEDULE     wait,warmup,active[,repeat] in steps; 3,3,3,1
//   STEPSCOPE_START_MS, STEPSCOPE_DURATION_MS   the span of time
//   STEPSCOPE_PRINT        0 prints no report
// NotFound without STEPSCOPE_LOG_DIR; InvalidArgument, naming the variable, for
// an invalid value.
absl::StatusOr<WindowOptions> WindowOptionsFrom(const Environment& environment,
                                                std::string_view program_name);

}  // namespace stepscope
