// JPEG in and out by libjpeg-turbo, and the folder of made-up JPEG files that
// the sample trains on when it is given none.
// All functions may be called from any thread.
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

// The whole file `path`. Errors: NotFound.
absl::StatusOr<std::vector<uint8_t>> ReadFile(const std::string& path);

// Decodes at full size to RGB, as torchvision does. Grey pictures become RGB.
// Errors: DataLoss (damaged, or ends early; the message names `what`, usually
// the file), Unimplemented (a colour space RGB cannot be made of).
absl::StatusOr<Image> DecodeJpeg(std::span<const uint8_t> bytes,
                                 const std::string& what);

// Baseline JPEG with the usual 4:2:0 sampling. Errors: Internal.
absl::StatusOr<std::vector<uint8_t>> EncodeJpeg(const Image& image,
                                                int quality);

// What MakeJpegFiles makes.
struct JpegSet {
  int count = 1000;
  int width = 500;
  int height = 375;
  int quality = 90;
  int kinds = 10;
};

// The folder MakeJpegFiles uses when none is named: under $XDG_CACHE_HOME, or
// $HOME/.cache, or runs/.data where neither is set.
std::string DefaultJpegCache(const JpegSet& set);

// Makes sure that `dir` holds the pictures of `set` as 00000.jpg, 00001.jpg
// ...; those that are there are kept. Each file appears whole or not at all, so
// an interrupted run, or two at once, do no harm. `on_progress(done)` is called
// from this thread now and then.
// Errors: what the file system said, with the path.
absl::StatusOr<std::vector<std::string>> MakeJpegFiles(
    const std::string& dir, const JpegSet& set,
    const std::function<void(int done)>& on_progress);

}  // namespace resnet
