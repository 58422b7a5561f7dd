// WriteTrace: one Trace and the annotations to draw beside it, into one file of
// one format.
//
// Writers stream: memory is bounded by a block. The file appears whole or not
// at all: it is written under a temporary name in its own folder and renamed.
// Names are written as they are, escaped in one place, always valid UTF-8.
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
  kText,          // the form tests write and goldens hold
};

struct ExportOptions {
  // XSpace of a GPU run: draw the training thread's waits for batches as a line
  // "stepscope: input wait" of the GPU. XProf knows no other way to count them
  // as input, without which it calls an input-bound run compute-bound.
  bool input_wait = true;
};

// A Chrome file is gzipped when `path` ends in ".gz". Errors: InvalidArgument,
// PermissionDenied, NotFound, ResourceExhausted (disk full, or an XSpace above
// the 2 GiB that XProf can open); nothing of the file is left behind.
absl::Status WriteTrace(const Trace& trace,
                        std::span<const Annotation> annotations, Format format,
                        const std::string& path,
                        const ExportOptions& options = {});

// Any other text of a log directory (a report, findings), under the same
// promise and with the same errors.
absl::Status WriteText(std::string_view text, const std::string& path);

}  // namespace stepscope
