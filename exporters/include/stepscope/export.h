// WriteTrace: writes a Trace, and annotations to draw beside it, to a file.
//
// Writers stream, so memory is bounded by a few blocks plus, for an XSpace, a
// few bytes per row. The file appears whole or not at all: it is written under
// a temporary name in its own folder and then renamed. Names are escaped and
// valid UTF-8: invalid bytes become U+FFFD.
//
// Both functions may be called from any thread, also at the same time for
// different paths. They block until the file is complete and renamed, but do
// not wait for the disk (no fsync). Compression runs on its own thread.
// docs/chrome_trace.md and docs/xspace.md describe the formats.
#pragma once

#include <absl/status/status.h>
#include <stepscope/annotation.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stepscope {

enum class Format : uint8_t {
  kChromeTb,      // Chrome trace as torch-tb-profiler 0.4.3 reads it
  kChromeKineto,  // Chrome trace in Kineto's current dialect: Perfetto, HTA,
                  // torch's tools, and stepscope itself
  kXSpace,        // XSpace protobuf for XProf
  kText,          // one line per row, for tests and for diff
};

struct ExportOptions {
  // For the XSpace of a GPU run: draw the training thread's waits for batches
  // as a line "stepscope: input wait" of the GPU. XProf counts only these waits
  // as input; without the line it calls an input-bound run compute-bound.
  bool input_wait = true;
  // Leaves no temporary file if the process is killed, where the file system
  // can. In a log directory, that file tells readers of an unfinished window.
  bool unnamed_until_whole = false;
};

// Writes `trace` to `path`, replacing a file that is there. A Chrome trace is
// gzipped if `path` ends in ".gz". After an error no part of the new file is
// left. Errors: InvalidArgument (an empty path, a folder), PermissionDenied,
// NotFound (no such folder), ResourceExhausted (disk or memory full, or an
// XSpace above the 2 GiB that XProf can open), OutOfRange (an XSpace that spans
// more than 106 days), Unavailable (other errors of the disk).
absl::Status WriteTrace(const Trace& trace,
                        std::span<const Annotation> annotations, Format format,
                        const std::string& path,
                        const ExportOptions& options = {});

// Writes any other text of a log directory (a report, findings) in the same
// way, with the same errors of paths, disk and memory.
absl::Status WriteText(std::string_view text, const std::string& path);

}  // namespace stepscope
