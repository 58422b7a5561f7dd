// ChromeRankPlace: where a Trace is drawn in a file that has several Traces.
#pragma once

#include <stepscope/annotation.h>

#include <cstdint>
#include <span>
#include <string>

namespace stepscope {

struct ChromeRankPlace {
  std::string name;       // "rank 3"; empty where the file has one Trace
  int64_t first_pid = 0;  // its processes are numbered from here; 0: they keep
                          // their numbers
  int64_t first_arrow = 1;  // its own arrows are numbered from here
  std::span<const TimelineArrow> arrows = {};
};

}  // namespace stepscope
