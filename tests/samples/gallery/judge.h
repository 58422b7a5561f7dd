// Checks what a report says about a program of the gallery.
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

// Returns the errors in the findings about a program and its fixed version.
// Empty if the rule fires on the first and not on the second, and no other rule
// fires without a reason that the pattern gives.
std::vector<std::string> Judge(const Pattern& pattern,
                               const std::vector<Told>& bad,
                               const std::vector<Told>& fixed);

// Returns the patterns that need a GPU, or those that do not.
std::vector<const Pattern*> Patterns(bool needs_gpu);

// Returns the name for tests and files, for example "fp64_compute".
std::string Underscored(std::string_view rule);

}  // namespace gallery
