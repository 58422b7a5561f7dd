// Adds up the stalls of one kind and puts them into words.
#pragma once

#include <stepscope/report.h>

#include <cstdint>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "context/stalls.h"

namespace stepscope {

// All stalls of one kind, as a rule reports them.
struct StallSum {
  int64_t count = 0;
  double lost_ns = 0;  // per step, over all steps but warm-up; if the stalls
                       // have a period, over whole periods
  // The most that the mean loss can be. Uses the upper end of its 95 %
  // interval, because a few stalls differ in length, and adds how much longer
  // the step after a stall takes.
  double most_ns = 0;
  double step_ns = 0;             // mean of all steps, with that loss
  double each_ns = 0;             // mean length of a stall
  std::string what, after;        // of the longest stall
  std::string every;              // "every 3rd step"; "" if there is no period
  std::vector<Example> examples;  // the longest, at most 3
};
StallSum SumOf(const AnalysisContext& context, StallKind kind);

// Returns, for example, "2 steps of 12 (every 5th step)".
std::string StepsInWords(const StallSum& sum, const Stalls& stalls);

// Returns what a step does: "waits 80 ms for a batch", "stops for 170 ms
// without any op".
std::string StallInWords(const Stall& stall);

}  // namespace stepscope
