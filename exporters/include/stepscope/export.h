// WriteTrace: writes a Trace, and annotations to draw beside it, to a file.
//
// Writers stream, so memory is bounded by a few blocks plus, for an XSpace, a
// few bytes per row. The file appears whole or not at all: it is written under
// a temporary name in its own folder and then renamed. Names are escaped and
// valid UTF-8: invalid bytes become U+FFFD.
//
// Both functions may be called from any thread, also at the same time for
// different paths. They block until the file is on its way to the disk;
// compression runs on a thread of its own. Source of the formats:
// docs/chrome_trace.md, docs/xspace.md.
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
  // XSpace of a GPU run: draw the training thread's waits for batches as a line
  // "stepscope: input wait" of the GPU. XProf counts no other waits as input
  // and would call an input-bound run compute-bound without it.
  bool input_wait = true;
};

// Writes `trace` to `path`, replacing a file that is there. A Chrome trace is
// gzipped if `path` ends in ".gz". Errors, after which nothing of the file is
// left: InvalidArgument (an empty path, a folder), PermissionDenied, NotFound
// (no such folder), ResourceExhausted (disk or memory full, or an XSpace above
// the 2 GiB that XProf can open), Unavailable (other errors of the disk).
absl::Status WriteTrace(const Trace& trace,
                        std::span<const Annotation> annotations, Format format,
                        const std::string& path,
                        const ExportOptions& options = {});

// Writes any other text of a log directory (a report, findings) in the same way
// and with the same errors.
absl::Status WriteText(std::string_view text, const std::string& path);

}  // namespace stepscope
