// PeekTrace: reads only the header of a Chrome trace, for choosing among the
// files of a folder.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

namespace stepscope {

struct TracePeek {
  bool is_ours = false;
  bool is_tb_flavour = false;  // ours, with names altered for the plugin
  bool is_timeline = false;    // several ranks, as TimelineWriter writes them
  // True if the file's last bytes cannot be the end of JSON. Never set for a
  // compressed file, whose last bytes do not show this.
  bool is_cut = false;
  int32_t rank = -1;
  std::string run_id;  // only in our files
  int32_t cycle = -1;  // only in our files
};

// Reads up to the first event. Errors: those of ReadTrace() for files that are
// not traces; InvalidArgument for an XSpace, which has no such header.
absl::StatusOr<TracePeek> PeekTrace(const std::string& path);

}  // namespace stepscope
