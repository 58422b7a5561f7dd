// What may be said of every program of the gallery.
#pragma once

#include <vector>

#include "pattern.h"

namespace gallery {

// Rules that are right to speak of any of these programs, fixed or not.
std::vector<Also> AlsoEverywhere();

}  // namespace gallery
