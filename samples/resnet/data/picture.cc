#include "data/picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace resnet {
namespace {

using Colour = std::array<float, 3>;

// Red, green and blue are one cosine at three phases, a third of a turn apart.
// `strength` 0 gives grey; `level` is the mean brightness.
Colour FromHue(double hue, double strength, double level) {
  Colour colour;
  for (int c = 0; c < 3; ++c) {
    double angle = 2 * std::numbers::pi * (hue + c / 3.0);
    colour[c] = static_cast<float>(level * (1 + strength * std::cos(angle)));
  }
  return colour;
}

// A soft-edged ellipse or rectangle, rotated, with its own stripes.
struct Thing {
  float x, y, cos, sin, half_width, half_height, stripes;
  bool round;
  Colour colour;
};

Thing MakeThing(Random& random, double hue, int width, int height) {
  Thing thing;
  double angle = random.Uniform(0, std::numbers::pi);
  thing.x = static_cast<float>(random.Uniform(0, width));
  thing.y = static_cast<float>(random.Uniform(0, height));
  thing.cos = static_cast<float>(std::cos(angle));
  thing.sin = static_cast<float>(std::sin(angle));
  thing.half_width = static_cast<float>(width * random.Uniform(0.05, 0.25));
  thing.half_height = static_cast<float>(height * random.Uniform(0.05, 0.25));
  thing.stripes = static_cast<float>(random.Uniform(0.05, 0.5));
  thing.round = random.Uniform() < 0.5;
  thing.colour =
      FromHue(hue + random.Uniform(-0.1, 0.1), 0.6, random.Uniform(60, 180));
  return thing;
}

// Random values on a lattice, interpolated between its points. This is one
// octave of a texture like that of clouds, leaves or walls.
class Lattice {
 public:
  Lattice(Random& random, int width, int height, int cell)
      : cell_(cell),
        columns_(width / cell + 2),
        values_(static_cast<size_t>(columns_) * (height / cell + 2)) {
    for (float& value : values_) {
      value = static_cast<float>(random.Uniform(-1, 1));
    }
  }
  // Adds `strength` times row y of the octave to `row`.
  void AddRow(int y, float strength, std::vector<float>& row) const {
    float fy = static_cast<float>(y % cell_) / static_cast<float>(cell_);
    const float* top = &values_[static_cast<size_t>(y / cell_) * columns_];
    const float* bottom = top + columns_;
    for (size_t x = 0; x < row.size(); ++x) {
      int cx = static_cast<int>(x) / cell_;
      float fx = static_cast<float>(static_cast<int>(x) % cell_) /
                 static_cast<float>(cell_);
      float left = top[cx] + fy * (bottom[cx] - top[cx]);
      float right = top[cx + 1] + fy * (bottom[cx + 1] - top[cx + 1]);
      row[x] += strength * (left + fx * (right - left));
    }
  }

 private:
  int cell_;
  int columns_;
  std::vector<float> values_;
};

void DrawThing(const Thing& thing, int y, std::vector<Colour>& row) {
  float reach = std::max(thing.half_width, thing.half_height) + 2;
  float dy = static_cast<float>(y) - thing.y;
  // 1.5 covers the diagonal of a square (1.41 times its side), however the
  // thing is rotated.
  int begin = std::max(0, static_cast<int>(thing.x - reach * 1.5f));
  int end = std::min(static_cast<int>(row.size()),
                     static_cast<int>(thing.x + reach * 1.5f));
  for (int x = begin; x < end; ++x) {
    float dx = static_cast<float>(x) - thing.x;
    float u = (dx * thing.cos + dy * thing.sin) / thing.half_width;
    float v = (dy * thing.cos - dx * thing.sin) / thing.half_height;
    float far = thing.round ? std::sqrt(u * u + v * v)
                            : std::max(std::abs(u), std::abs(v));
    // Full inside, and falling to 0 over the outer twelfth, which gives a soft
    // edge.
    float cover = std::clamp((1 - far) * 12, 0.0f, 1.0f);
    if (cover == 0) continue;
    float light = 1 + 0.25f * std::sin(u * 20 * thing.stripes) - 0.3f * v;
    for (int c = 0; c < 3; ++c) {
      row[x][c] += cover * (thing.colour[c] * light - row[x][c]);
    }
  }
}

}  // namespace

Image MakePicture(int64_t index, int64_t kind, int width, int height) {
  // Two streams of random numbers: one shared by all pictures of a kind, and
  // one for this picture only.
  Random of_kind(0x5EED, static_cast<uint64_t>(kind));
  Random random(0xF11, static_cast<uint64_t>(index));
  double hue = of_kind.Uniform();
  int64_t things = 2 + of_kind.Below(5);
  Colour sky = FromHue(hue + 0.5, 0.25, random.Uniform(130, 200));
  Colour ground = FromHue(hue, 0.4, random.Uniform(60, 130));
  float horizon = static_cast<float>(height * random.Uniform(0.3, 0.8));
  std::vector<Thing> scene;
  for (int64_t i = 0; i < things; ++i) {
    scene.push_back(MakeThing(random, hue + 0.33, width, height));
  }
  std::array<Lattice, 3> octaves = {Lattice(random, width, height, 64),
                                    Lattice(random, width, height, 16),
                                    Lattice(random, width, height, 4)};
  constexpr std::array<float, 3> kStrength = {28, 18, 18};

  Image image{width, height, {}};
  image.pixels.resize(static_cast<size_t>(width) * height * 3);
  std::vector<Colour> row(width);
  std::vector<float> texture(width);
  for (int y = 0; y < height; ++y) {
    // 0 in the sky and 1 on the ground, blended over twelve rows.
    float below =
        std::clamp((static_cast<float>(y) - horizon) / 6, -1.0f, 1.0f) / 2 +
        0.5f;
    float fade = 1 - 0.4f * std::abs(static_cast<float>(y) - horizon) / height;
    Colour back;
    for (int c = 0; c < 3; ++c) {
      back[c] = (sky[c] + below * (ground[c] - sky[c])) * fade;
    }
    std::fill(row.begin(), row.end(), back);
    for (const Thing& thing : scene) DrawThing(thing, y, row);
    std::fill(texture.begin(), texture.end(), 0.0f);
    for (size_t i = 0; i < octaves.size(); ++i) {
      // The sky has less texture than the ground.
      octaves[i].AddRow(y, kStrength[i] * (0.4f + 0.6f * below), texture);
    }
    uint8_t* out = image.Row(y);
    for (int x = 0; x < width; ++x) {
      uint64_t bits = random.Next();
      // Grain with 32 levels, the same in all channels. Without the grain a
      // JPEG file of the picture would be much smaller than that of a
      // photograph.
      float grain = static_cast<float>(bits & 31) - 15.5f;
      for (int c = 0; c < 3; ++c) {
        float value = row[x][c] + texture[x] + grain;
        out[x * 3 + c] =
            static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f) + 0.5f);
      }
    }
  }
  return image;
}

Image MakeNoise(uint64_t seed, int64_t index, int width, int height) {
  Random random(seed, static_cast<uint64_t>(index));
  Image image{width, height, {}};
  image.pixels.resize(static_cast<size_t>(width) * height * 3);
  for (uint8_t& value : image.pixels) {
    value = static_cast<uint8_t>(random.Next() >> 56);
  }
  return image;
}

}  // namespace resnet
