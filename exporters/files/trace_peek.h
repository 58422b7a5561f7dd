// PeekTrace: what the header of a Chrome trace says about it, for choosing
// among the files of a folder without reading them.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

namespace stepscope {

struct TracePeek {
  bool is_ours = false;
  bool is_tb_flavour = false;  // ours: names altered for the plugin
  // Its last bytes cannot be the end of JSON; never set for an archive, whose
  // end shows nothing.
  bool is_cut = false;
  int32_t rank = -1;
  std::string run_id;  // ours
  int32_t cycle = -1;  // ours
};

// Reads up to the first event. Errors: those of ReadTrace() for files that are
// not traces; InvalidArgument for an XSpace, which has no such header.
absl::StatusOr<TracePeek> PeekTrace(const std::string& path);

}  // namespace stepscope
