// Artificial pictures, made from a number: no download, the same on every
// machine, and about as hard for a JPEG decoder as a photograph.
#pragma once

#include <cstdint>

#include "data/image.h"

namespace resnet {

// Makes a scene of sky, ground, a few objects, texture and film grain. The kind
// of scene (colours, number of objects) depends on `kind` and everything else
// on `index`, so that a network can learn to tell kinds apart. REQUIRES: width
// and height are at least 8.
Image MakePicture(int64_t index, int64_t kind, int width, int height);

// Makes a picture of independent random bytes, as in FakeCIFAR.
Image MakeNoise(uint64_t seed, int64_t index, int width, int height);

}  // namespace resnet
