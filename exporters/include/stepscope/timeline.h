// TimelineWriter: several ranks of a run in one Chrome trace, on one clock, to
// be looked at in Perfetto. Analyse the ranks' own traces instead of it.
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
  // Opens a temporary file beside `path`; gzipped if `path` ends in ".gz".
  // `residual_us`: how far the clocks still disagree, for readers of the file;
  // negative: unknown. Errors: those of WriteTrace().
  static absl::StatusOr<std::unique_ptr<TimelineWriter>> Make(
      const std::string& path, double residual_us);
  ~TimelineWriter();

  // Streams the Trace into the file. In the file an arrow starts before it ends
  // if its start is earlier in time, or in a Trace that is added earlier. One
  // thread at a time; blocks.
  void Add(const Trace& trace, const TimelineRank& rank);
  // Puts the file in place; without it nothing is left. Errors: the first one
  // of writing.
  absl::Status Close();

 private:
  struct File;
  explicit TimelineWriter(std::unique_ptr<File> file);
  std::unique_ptr<File> file_;
};

}  // namespace stepscope
