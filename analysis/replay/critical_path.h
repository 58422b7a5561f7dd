// The critical path: going back from the end of the last step, at every moment
// the one thing that held everything behind it up, be it host code, a launch, a
// device work or a wait. Only what lies on it can make the steps shorter.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "ops/intervals.h"
#include "replay/gpu/device_program.h"
#include "steps/steps.h"
#include "timeline/causes.h"

namespace stepscope {

// Where the path runs for a while.
struct PathPiece {
  Span span = {};
  Cause cause = Cause::kUnknown;
  RowId op = kNone;       // that runs, or that launched the work
  RowId call = kNone;     // host pieces inside a runtime call
  ActivityRef work = {};  // device pieces; row kNone on the host
};

// Pieces in time order, without gaps from the begin of the first step to the
// end of the last.
std::vector<PathPiece> FindCriticalPath(const Trace& trace,
                                        const DeviceProgram& program);

// Sums per steady step by cause and op, the longest first.
std::vector<PathPart> SumPath(const Trace& trace, const Steps& steps,
                              const std::vector<PathPiece>& path);

// The path for drawing: a step in up to 500 stretches, each called by what
// takes most of it, and neighbours of one category joined.
std::vector<PathSlice> DrawPath(const Trace& trace, const Steps& steps,
                                const std::vector<PathPiece>& path);

}  // namespace stepscope
