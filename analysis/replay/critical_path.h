// The critical path of a run with a GPU: for every moment, the one thing that
// delayed the end of the steps, be it host code, a launch, an activity or a
// wait. It is found by walking back from the end of the last step. Only changes
// to what lies on the path can make the steps shorter.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ops/intervals.h"
#include "replay/gpu/device_program.h"
#include "steps/steps.h"
#include "timeline/causes.h"

namespace stepscope {

// One piece of the path, in recorded time.
struct PathPiece {
  Span span = {};
  Cause cause = Cause::kUnknown;
  RowId op = kNone;           // the op that runs, or that launched the activity
  RowId call = kNone;         // on the host, inside a runtime call
  ActivityRef activity = {};  // on the device; row is kNone on the host
};

// Returns the path from the start of the first step of `program` to the end of
// its last one, in time order and without gaps. Empty without steps.
std::vector<PathPiece> FindCriticalPath(const Trace& trace,
                                        const DeviceProgram& program);

// Adds up the path by cause and name, in ms per steady step; at most 50 rows,
// the longest first.
std::vector<PathPart> SumPath(const Trace& trace, const Steps& steps,
                              const std::vector<PathPiece>& path);

// Adds up the path by cause alone, with the keys of time_split_ms. No part is
// left out, so the result adds up to the mean steady step.
std::map<std::string, double> SplitPath(const Steps& steps,
                                        const std::vector<PathPiece>& path);

// Simplifies the path for drawing: cuts each step into up to 500 slices, gives
// each the cause that takes most of it, and joins neighbours of one cause.
std::vector<PathSlice> DrawPath(const Trace& trace, const Steps& steps,
                                const std::vector<PathPiece>& path);

}  // namespace stepscope
