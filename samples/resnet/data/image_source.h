// ImageSource: gives pictures and their labels. Reading a picture does the real
// work (disk, decoding). Nothing is kept between reads, so a source takes the
// same memory however much it has on disk. Any number of threads may read.
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
// pictures are resized as a whole.
enum class Framing { kRandomResizedCrop, kWhole };

class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual std::string description() const = 0;
  virtual int64_t size() const = 0;
  virtual int classes() const = 0;
  virtual Framing framing() const = 0;
  // Reads one picture. REQUIRES: 0 <= index < size(). The label is below
  // classes(). Errors: NotFound, DataLoss; the message names the file.
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

// Makes 10,000 pictures of random bytes, 32 by 32, with random labels.
std::unique_ptr<ImageSource> MakeFakeCifar(uint64_t seed, int classes);

// Opens the training or the test split of CIFAR-10's binary version: records of
// one label byte and 3,072 pixel bytes (planes of red, green, blue). Errors:
// NotFound (no such files in `dir`), DataLoss (wrong size or label).
absl::StatusOr<std::unique_ptr<ImageSource>> OpenCifar10(const std::string& dir,
                                                         bool train);

// The values of --data and related flags.
struct SourceRequest {
  std::string data = {};        // "jpeg", "fakecifar" or a folder
  std::string jpeg_cache = {};  // empty: DefaultJpegCache()
  int classes = 0;              // 0: the default of the source
  uint64_t seed = 1;
};
struct Sources {
  std::unique_ptr<ImageSource> train;
  std::unique_ptr<ImageSource> validate;
};
// Opens the pictures; for "jpeg" makes them first. A folder contains either
// CIFAR-10's .bin files, or one sub-folder of JPEG files for each class (which
// may be inside train/ and val/). `say` is called with lines for the user.
// Errors: NotFound, InvalidArgument, DataLoss, Unavailable.
absl::StatusOr<Sources> OpenSources(
    const SourceRequest& request,
    const std::function<void(const std::string&)>& say);

}  // namespace resnet
