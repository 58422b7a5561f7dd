// Writes an XSpace protobuf (xspace/proto/xplane.proto) for XProf 2.24.
// docs/xspace.md describes its planes.
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
  // The part of the file's name before ".xplane.pb", which XProf shows as the
  // host.
  std::string host;
  // Draw waits for batches as a line that XProf counts as input.
  bool input_wait = true;
  uint64_t most_bytes = XSpaceFile::kMostBytes;
};

// Streams the whole file into `sink`, which keeps write errors for Close().
// Errors: ResourceExhausted (the file would be too large for XProf even without
// Python frames and short ops), OutOfRange (the Trace spans more than 106
// days). After an error `sink` must be destroyed without Close(), because it
// may hold a part of the file.
absl::Status WriteXSpace(const Trace& trace,
                         std::span<const Annotation> annotations,
                         const XSpaceOptions& options, FileSink& sink);

}  // namespace stepscope
