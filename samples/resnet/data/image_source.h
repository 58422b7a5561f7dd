// ImageSource: where pictures and their labels come from. Reading one does the
// real work (disk, decoding); nothing is kept between reads, so a source is the
// same size whatever it holds on disk. Any number of threads may read.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/image.h"

namespace resnet {

// How a picture becomes a square: photographs are cropped at random, small
// pictures are resized whole.
enum class Framing { kRandomResizedCrop, kWhole };

class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual std::string description() const = 0;
  virtual int64_t size() const = 0;
  virtual int classes() const = 0;
  virtual Framing framing() const = 0;
  // REQUIRES: 0 <= index < size(). Labels are below classes().
  // Errors: NotFound, DataLoss; the message names the file.
  virtual absl::Status Read(int64_t index, Image* image, int* label) const = 0;
};

// One file and its label.
struct LabelledFile {
  std::string path;
  int label = 0;
};
std::unique_ptr<ImageSource> MakeJpegSource(std::vector<LabelledFile> files,
                                            int classes,
                                            std::string description);

// 10,000 pictures of random bytes, 32 by 32, with random labels.
std::unique_ptr<ImageSource> MakeFakeCifar(uint64_t seed, int classes);

// The training or the test split of CIFAR-10's binary version: records of one
// label byte and 3,072 pixel bytes (planes of red, green, blue).
// Errors: NotFound (no such files in `dir`), DataLoss (size or label wrong).
absl::StatusOr<std::unique_ptr<ImageSource>> OpenCifar10(const std::string& dir,
                                                         bool train);

// What --data and its companions ask for.
struct SourceRequest {
  std::string data = {};        // "jpeg", "fakecifar" or a folder
  std::string jpeg_cache = {};  // empty: DefaultJpegCache()
  int classes = 0;              // 0: what suits the source
  uint64_t seed = 1;
};
struct Sources {
  std::unique_ptr<ImageSource> train;
  std::unique_ptr<ImageSource> validate;
};
// Opens, and for "jpeg" first makes, the pictures. A folder holds either
// CIFAR-10's .bin files, or one sub-folder of JPEG files for each class
// (perhaps inside train/ and val/). `say` is given lines for the user.
// Errors: NotFound, InvalidArgument, DataLoss, Unavailable.
absl::StatusOr<Sources> OpenSources(
    const SourceRequest& request,
    const std::function<void(const std::string&)>& say);

}  // namespace resnet
