// Pictures made up from a number: no download, the same on every machine, and
// about as hard for a JPEG decoder as a photograph.
#pragma once

#include <cstdint>

#include "data/image.h"

namespace resnet {

// A scene of sky, ground, a few objects, texture and film grain. The kind of
// scene (colours, number of objects) follows from `kind`, all else from
// `index`, so that a network can tell kinds apart.
// REQUIRES: width and height at least 8.
Image MakePicture(int64_t index, int64_t kind, int width, int height);

// A picture of independent random bytes (what FakeCIFAR is made of).
Image MakeNoise(uint64_t seed, int64_t index, int width, int height);

}  // namespace resnet
