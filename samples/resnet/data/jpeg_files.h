// Reads and writes JPEG with libjpeg-turbo, and makes the folder of artificial
// JPEG files that the sample trains on if it is given none. All functions may
// be called from any thread.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/image.h"

namespace resnet {

// Returns the contents of the file `path`. Errors: NotFound.
absl::StatusOr<std::vector<uint8_t>> ReadFile(const std::string& path);

// Decodes to RGB at full size, like torchvision. Grey pictures become RGB.
// Errors: DataLoss (damaged, or ends early; the message names `what`, usually
// the file), Unimplemented (a colour space that cannot be converted to RGB).
absl::StatusOr<Image> DecodeJpeg(std::span<const uint8_t> bytes,
                                 const std::string& what);

// Encodes as baseline JPEG with the usual 4:2:0 sampling. Errors: Internal.
absl::StatusOr<std::vector<uint8_t>> EncodeJpeg(const Image& image,
                                                int quality);

// The pictures that MakeJpegFiles makes.
struct JpegSet {
  int count = 1000;
  int width = 500;
  int height = 375;
  int quality = 90;
  int kinds = 10;
};

// Returns the folder that MakeJpegFiles uses by default: under $XDG_CACHE_HOME,
// or $HOME/.cache, or runs/.data if neither is set.
std::string DefaultJpegCache(const JpegSet& set);

// Makes sure that `dir` contains the pictures of `set` as 00000.jpg, 00001.jpg
// ... Existing pictures are kept. Each file appears completely or not at all,
// so an interrupted run, or two runs at once, do no harm. `on_progress(done)`
// is called from this thread from time to time. Errors: those of the file
// system, with the path.
absl::StatusOr<std::vector<std::string>> MakeJpegFiles(
    const std::string& dir, const JpegSet& set,
    const std::function<void(int done)>& on_progress);

}  // namespace resnet
