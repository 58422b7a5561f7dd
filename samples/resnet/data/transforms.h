// The steps between decoding a picture and the network, on the CPU: crop,
// resize, flip, normalise. They mean the same as torchvision's transforms of
// these names, but the arithmetic is our own.
#pragma once

#include <cstdint>
#include <span>

#include "data/image.h"

namespace resnet {

struct Box {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
  bool operator==(const Box&) const = default;
};

// Returns a random part of a width x height picture: 8 to 100 % of its area,
// with sides from 3:4 to 4:3. If ten tries fail, returns the largest central
// part within these ratios. Source: torchvision, RandomResizedCrop.
Box RandomResizedCrop(int width, int height, Random& random);

// Returns the central square with 7/8 of the shorter side. This is what remains
// after the usual "resize to 256, crop 224".
Box CentralCrop(int width, int height);

// Resizes the part `box` of `image` to side x side, mirrored if `flip`. The
// triangle filter widens when shrinking, which avoids aliasing. `planes`
// receives red, green and blue one after the other, side * side bytes each.
// REQUIRES: `box` is inside `image` and not empty.
void ResizeCrop(const Image& image, const Box& box, int side, bool flip,
                std::span<uint8_t> planes);

// Returns one of five sides between 3/4 and 5/4 of `side`, but at least the
// smaller of `side` and 16.
int DrawSide(int side, Random& random);
int SmallestDrawnSide(int side);

// Mean and standard deviation of ImageNet's channels, for values in [0, 1].
inline constexpr float kMean[3] = {0.485f, 0.456f, 0.406f};
inline constexpr float kStd[3] = {0.229f, 0.224f, 0.225f};

// Computes out = (planes / 255 - kMean) / kStd, channel by channel. REQUIRES:
// equal sizes, a multiple of three.
void Normalize(std::span<const uint8_t> planes, std::span<float> out);

}  // namespace resnet
