// What happens to a picture between decoding and the network, on the CPU: crop,
// resize, flip, normalise. Same meaning as torchvision's transforms of these
// names; the arithmetic is ours.
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

// A random part of a width x height picture, 8 to 100 % of its area, with sides
// of 3:4 to 4:3; the largest central one of those shapes if ten tries fail.
// Source: torchvision, RandomResizedCrop.
Box RandomResizedCrop(int width, int height, Random& random);

// The central square, 7/8 of the shorter side: what remains after the usual
// "resize to 256, crop 224".
Box CentralCrop(int width, int height);

// Resizes the part `box` of `image` to side x side with a triangle filter that
// widens when shrinking (no aliasing), mirrored if `flip`. `planes` gets red,
// green and blue one after the other, side * side bytes each.
// REQUIRES: `box` lies inside `image` and is not empty.
void ResizeCrop(const Image& image, const Box& box, int side, bool flip,
                std::span<uint8_t> planes);

// One of five sides from three quarters to five quarters of `side`, but at
// least `side` itself or 16, whichever is smaller.
int DrawSide(int side, Random& random);
int SmallestDrawnSide(int side);

// Mean and standard deviation of ImageNet's channels, of values in [0, 1].
inline constexpr float kMean[3] = {0.485f, 0.456f, 0.406f};
inline constexpr float kStd[3] = {0.229f, 0.224f, 0.225f};

// out = (planes / 255 - kMean) / kStd, channel by channel.
// REQUIRES: equal sizes, a multiple of three.
void Normalize(std::span<const uint8_t> planes, std::span<float> out);

}  // namespace resnet
