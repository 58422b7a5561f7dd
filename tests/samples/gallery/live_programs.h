// Runs the gallery's programs. Their reports depend on what else runs on the
// machine.
#pragma once

#include <string>
#include <vector>

#include "judge.h"
#include "pattern.h"

namespace gallery {

// The findings in the report of one run.
struct Spoken {
  std::vector<Told> told;
  int64_t steps = 0;
  double variation = 1;  // coefficient of variation of the steps
};

// Runs the program once. Fails the test if the program fails or its report
// cannot be read.
Spoken RunOnce(const Pattern& pattern, const std::string& flags);

// Fails the test if the findings about the program and its fixed version are
// wrong. Skips the test if the machine is too busy.
void ExpectRight(const Pattern& pattern, const std::string& flags);

}  // namespace gallery
