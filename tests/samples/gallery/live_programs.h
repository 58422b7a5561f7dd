// Runs the gallery's programs. What their reports say depends on what else the
// machine does.
#pragma once

#include <string>
#include <vector>

#include "judge.h"
#include "pattern.h"

namespace gallery {

// What the report of one run says.
struct Spoken {
  std::vector<Told> told;
  int64_t steps = 0;
  double variation = 1;  // of the steps
};

// Fails the test if the program fails or its report cannot be read.
Spoken RunOnce(const Pattern& pattern, const std::string& flags);

// Fails the test if the findings about the program and its fixed version are
// wrong, and skips it where the machine is too busy to decide.
void ExpectRight(const Pattern& pattern, const std::string& flags);

}  // namespace gallery
