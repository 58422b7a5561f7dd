// TimelineWriter: writes several ranks of a run into one Chrome trace, on one
// clock, to look at in Perfetto. Such a file is not for analysis; analyse the
// ranks' own traces.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <stepscope/annotation.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace stepscope {

// How a Trace is drawn among the others.
struct TimelineRank {
  std::string name;             // "rank 3"
  int64_t clock_offset_ns = 0;  // subtracted from all its times
  std::span<const Annotation> annotations = {};
  std::span<const TimelineArrow> arrows = {};
};

class TimelineWriter {
 public:
  // Opens a temporary file in the folder of `path`, which vanishes if the
  // process is killed, where the file system can; gzipped if `path` ends in
  // ".gz". `residual_us` tells readers of the file how far the clocks still
  // disagree; a negative value means unknown. Errors: those of WriteTrace().
  static absl::StatusOr<std::unique_ptr<TimelineWriter>> Make(
      const std::string& path, double residual_us);
  ~TimelineWriter();

  // Streams the Trace into the file; blocks. Only one thread may call it at a
  // time. Within a Trace events are in time order, so an arrow that starts in
  // one Trace and ends in another has its start first in the file only if the
  // Trace with the start is added first.
  void Add(const Trace& trace, const TimelineRank& rank);
  // Renames the file into place. Without this call no file is left. Returns the
  // first error that writing had.
  absl::Status Close();

 private:
  struct File;
  explicit TimelineWriter(std::unique_ptr<File> file);
  std::unique_ptr<File> file_;
};

}  // namespace stepscope
