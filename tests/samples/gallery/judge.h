// What a report says of a program of the gallery, and whether that is right.
#pragma once

#include <stepscope/analysis.h>

#include <string>
#include <string_view>
#include <vector>

#include "pattern.h"

namespace gallery {

struct Told {
  std::string rule, evidence;
  bool is_note = false;
};

std::vector<Told> ToldBy(const stepscope::Report& report);

// The errors in the findings about a program and about its fixed version; empty
// if the rule fires on the first and not on the second, and no other rule fires
// without a reason that the pattern names.
std::vector<std::string> Judge(const Pattern& pattern,
                               const std::vector<Told>& bad,
                               const std::vector<Told>& fixed);

// Those that need a GPU, or those that do not.
std::vector<const Pattern*> Patterns(bool needs_gpu);

// "fp64_compute": what tests and files are called.
std::string Underscored(std::string_view rule);

}  // namespace gallery
