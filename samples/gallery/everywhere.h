// Findings that are right for every program of the gallery.
#pragma once

#include <vector>

#include "pattern.h"

namespace gallery {

// Returns the rules that may fire on any of these programs, fixed or not.
std::vector<Also> AlsoEverywhere();

}  // namespace gallery
