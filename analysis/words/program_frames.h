// ProgramFrames: which function of the program itself runs at a moment, from
// recorded Python frames.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "ops/by_name.h"

namespace stepscope {

// The innermost and the outermost open frame that are not of a framework, as
// SourceLine() takes them; 0 if there is none.
struct ProgramFrame {
  NameId innermost = 0;
  NameId outermost = 0;
};

// Goes through the frames once, in time order. Valid while the Trace lives.
class ProgramFrames {
 public:
  explicit ProgramFrames(const Trace& trace);

  // Returns what runs on `thread` at `time_ns`. REQUIRES: no call before had a
  // later `time_ns`.
  ProgramFrame At(RowId thread, int64_t time_ns);

 private:
  // Closes the frames of `thread` that have ended. Returns the innermost one
  // that is open, kNone if there is none.
  RowId OpenAt(RowId thread, int64_t time_ns);

  const Trace& trace_;
  ByName<bool> is_framework_;
  std::vector<RowId> around_;      // by frame: the one that was open before it
  std::vector<NameId> outermost_;  // by frame
  std::vector<RowId> open_;        // by thread
  RowId next_ = 0;
};

}  // namespace stepscope
