// What a comparison says, in words. Text, Markdown and the page share these.
#pragma once

#include <stepscope/compare.h>

#include <string>
#include <vector>

namespace stepscope {

// A line of the verdict: a label such as "measured", and a text. A line without
// a label continues the line before.
struct VerdictLine {
  std::string label, text;
};
std::vector<VerdictLine> VerdictOf(const Comparison& comparison);

// The rows with the second trace's times and calls scaled to the batch size of
// the first, largest difference first.
std::vector<ComparedTime> Normalised(std::vector<ComparedTime> rows,
                                     double scale);

// True if one of the runs has a GPU.
bool HasGpu(const Comparison& comparison);

}  // namespace stepscope
