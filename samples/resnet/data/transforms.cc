#include "data/transforms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace resnet {
namespace {

// For each output position: the inputs that contribute to it, and their
// weights.
class Filter {
 public:
  // Maps `size` inputs from `begin` on to `outputs` positions.
  Filter(int begin, int size, int outputs) : taps_(outputs) {
    double scale = static_cast<double>(size) / outputs;
    // At least one input. When enlarging, the triangle interpolates the two
    // nearest inputs.
    double reach = std::max(scale, 1.0);
    for (int i = 0; i < outputs; ++i) {
      // The centres of pixels are at half-integers, so that both edges are
      // treated the same.
      double centre = (i + 0.5) * scale;
      int first = std::max(0, static_cast<int>(centre - reach + 0.5));
      int last = std::min(size, static_cast<int>(centre + reach + 0.5));
      Taps& taps = taps_[i];
      taps.first = begin + first;
      taps.offset = weights_.size();
      taps.count = last - first;
      double sum = 0;
      for (int k = first; k < last; ++k) {
        double weight = std::max(0.0, 1 - std::abs((k + 0.5 - centre) / reach));
        weights_.push_back(static_cast<float>(weight));
        sum += weight;
      }
      // `sum` contains only inputs within the picture, so that the weights add
      // up to 1 at the edges, too.
      for (size_t k = taps.offset; k < weights_.size(); ++k) {
        weights_[k] /= static_cast<float>(sum);
      }
    }
  }
  int First(int i) const { return taps_[i].first; }
  std::span<const float> Weights(int i) const {
    return {&weights_[taps_[i].offset], static_cast<size_t>(taps_[i].count)};
  }

 private:
  struct Taps {
    int first = 0;
    int count = 0;
    size_t offset = 0;
  };
  std::vector<Taps> taps_;
  std::vector<float> weights_;
};

// Adds weight times a row of bytes. The compiler must vectorise this loop,
// because it does most of the work of resizing a large crop.
void AddRow(const uint8_t* row, float weight, std::span<float> sums) {
  for (size_t i = 0; i < sums.size(); ++i) {
    sums[i] += weight * static_cast<float>(row[i]);
  }
}

}  // namespace

Box RandomResizedCrop(int width, int height, Random& random) {
  double area = static_cast<double>(width) * height;
  for (int attempt = 0; attempt < 10; ++attempt) {
    double wanted = area * random.Uniform(0.08, 1.0);
    // Uniform in the logarithm, so that wide and tall crops are equally likely.
    double ratio =
        std::exp(random.Uniform(std::log(3.0 / 4), std::log(4.0 / 3)));
    int w = static_cast<int>(std::lround(std::sqrt(wanted * ratio)));
    int h = static_cast<int>(std::lround(std::sqrt(wanted / ratio)));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    return {static_cast<int>(random.Below(width - w + 1)),
            static_cast<int>(random.Below(height - h + 1)), w, h};
  }
  double shape =
      std::clamp(static_cast<double>(width) / height, 3.0 / 4, 4.0 / 3);
  int w = std::min(width, std::max(1, static_cast<int>(height * shape)));
  int h = std::min(height, std::max(1, static_cast<int>(width / shape)));
  return {(width - w) / 2, (height - h) / 2, w, h};
}

Box CentralCrop(int width, int height) {
  int side = std::max(1, std::min(width, height) * 7 / 8);
  return {(width - side) / 2, (height - side) / 2, side, side};
}

void ResizeCrop(const Image& image, const Box& box, int side, bool flip,
                std::span<uint8_t> planes) {
  // Vertically first, because that pass adds whole rows of bytes (AddRow), and
  // the horizontal pass then has only `side` rows.
  Filter down(box.y, box.height, side);
  Filter across(0, box.width, side);
  size_t plane = static_cast<size_t>(side) * side;
  std::vector<float> row(static_cast<size_t>(box.width) * 3);
  for (int y = 0; y < side; ++y) {
    std::fill(row.begin(), row.end(), 0.0f);
    std::span<const float> weights = down.Weights(y);
    for (size_t k = 0; k < weights.size(); ++k) {
      const uint8_t* from =
          image.Row(down.First(y) + static_cast<int>(k)) + box.x * 3;
      AddRow(from, weights[k], row);
    }
    for (int x = 0; x < side; ++x) {
      // 0.5 rounds the sum to the nearest byte when it is truncated below.
      std::array<float, 3> sum = {0.5f, 0.5f, 0.5f};
      const float* from = &row[static_cast<size_t>(across.First(x)) * 3];
      for (float weight : across.Weights(x)) {
        for (int c = 0; c < 3; ++c) sum[c] += weight * from[c];
        from += 3;
      }
      size_t at = static_cast<size_t>(y) * side + (flip ? side - 1 - x : x);
      for (int c = 0; c < 3; ++c) {
        planes[c * plane + at] =
            static_cast<uint8_t>(std::clamp(sum[c], 0.0f, 255.0f));
      }
    }
  }
}

int SmallestDrawnSide(int side) {
  return std::max(std::min(side, 16), side - side / 8 * 2);
}

int DrawSide(int side, Random& random) {
  int steps = static_cast<int>(random.Below(5)) - 2;
  return std::max(SmallestDrawnSide(side), side + steps * (side / 8));
}

void Normalize(std::span<const uint8_t> planes, std::span<float> out) {
  size_t plane = planes.size() / 3;
  for (size_t c = 0; c < 3; ++c) {
    // Both divisions are combined into one factor, so that each value needs
    // only a multiplication and a subtraction.
    float scale = 1 / (255 * kStd[c]);
    float shift = kMean[c] / kStd[c];
    for (size_t i = c * plane; i < (c + 1) * plane; ++i) {
      out[i] = static_cast<float>(planes[i]) * scale - shift;
    }
  }
}

}  // namespace resnet
