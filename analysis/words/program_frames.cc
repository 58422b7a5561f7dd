#include "words/program_frames.h"

#include <span>

#include "words/source_line.h"

namespace stepscope {

ProgramFrames::ProgramFrames(const Trace& trace)
    : trace_(trace),
      is_framework_(trace, &IsFrameworkFrame),
      around_(trace.python_frames().size()),
      outermost_(trace.python_frames().size()),
      open_(trace.threads().size(), kNone) {}

ProgramFrame ProgramFrames::At(RowId thread, int64_t time_ns) {
  const std::span<const PythonFrame> frames = trace_.python_frames();
  for (; next_ < frames.size() && frames[next_].begin_ns <= time_ns; ++next_) {
    const PythonFrame& frame = frames[next_];
    if (frame.thread >= open_.size() || is_framework_(frame.name)) continue;
    const RowId around = OpenAt(frame.thread, frame.begin_ns);
    around_[next_] = around;
    outermost_[next_] = around == kNone ? frame.name : outermost_[around];
    open_[frame.thread] = next_;
  }
  const RowId open = thread < open_.size() ? OpenAt(thread, time_ns) : kNone;
  if (open == kNone) return {};
  return {.innermost = frames[open].name, .outermost = outermost_[open]};
}

RowId ProgramFrames::OpenAt(RowId thread, int64_t time_ns) {
  RowId& row = open_[thread];
  while (row != kNone && trace_.python_frames()[row].end_ns <= time_ns) {
    row = around_[row];
  }
  return row;
}

}  // namespace stepscope
