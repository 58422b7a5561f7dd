// The stalls of one kind added up, and their words.
#pragma once

#include <stepscope/report.h>

#include <cstdint>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "context/stalls.h"

namespace stepscope {

// The stalls of one kind, as a rule reports them.
struct StallSum {
  int64_t count = 0;
  double lost_ns = 0;  // per step, over all steps but warm-up; where the
                       // stalls have a period, over whole periods
  // The most that the mean loss can be: the end of its 95 % interval, because
  // each of a few stalls is longer or shorter than the others, and what the
  // step after a stall takes longer than others.
  double most_ns = 0;
  double step_ns = 0;             // mean of all steps with that loss
  double each_ns = 0;             // per stall
  std::string what, after;        // of the longest
  std::string every;              // "every 3rd step"; "" if there is no period
  std::vector<Example> examples;  // the longest, at most 3
};
StallSum SumOf(const AnalysisContext& context, StallKind kind);

// "2 steps of 12 (every 5th step)"
std::string StepsInWords(const StallSum& sum, const Stalls& stalls);

// "waits 80 ms for a batch", "stops for 170 ms without any op", for a step.
std::string StallInWords(const Stall& stall);

}  // namespace stepscope
