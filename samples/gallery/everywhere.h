// Findings that are true of every program of the gallery.
#pragma once

#include <vector>

#include "pattern.h"

namespace gallery {

// Rules that may fire on any of these programs, fixed or not.
std::vector<Also> AlsoEverywhere();

}  // namespace gallery
