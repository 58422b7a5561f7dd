// XSpace protobuf (proto/xplane.proto) laid out so that XProf 2.24 shows the
// right thing: own step groups, tiled step spans on GPU planes, waits for data
// as input, memory events, advice as banner and rows. docs/xspace.md says which
// plane holds what.
#pragma once

#include <absl/status/status.h>
#include <stepscope/annotation.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <span>
#include <string>

#include "io/file_sink.h"
#include "xspace/writer/xspace_plane.h"

namespace stepscope {

struct XSpaceOptions {
  // The part of the file's name before ".xplane.pb", which XProf takes for the
  // host.
  std::string host;
  // Draw waits for batches as a line that XProf counts as input.
  bool input_wait = true;
  uint64_t most_bytes = XSpaceFile::kMostBytes;
};

// Streams the whole file into `sink`; write errors stay with the sink. Errors:
// ResourceExhausted (larger than XProf can open even without Python frames and
// short ops; `sink` then holds a part and must be given up).
absl::Status WriteXSpace(const Trace& trace,
                         std::span<const Annotation> annotations,
                         const XSpaceOptions& options, FileSink& sink);

}  // namespace stepscope
