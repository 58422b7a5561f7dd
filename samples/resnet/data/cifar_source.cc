#include <algorithm>
#include <filesystem>
#include <string_view>

#include "data/image_source.h"
#include "data/jpeg_files.h"
#include "data/picture.h"

namespace resnet {
namespace {

constexpr int kSide = 32;
constexpr size_t kPlane = kSide * kSide;
constexpr size_t kRecord = 1 + 3 * kPlane;  // the label, then plane by plane
constexpr int kCifarClasses = 10;

class FakeCifar final : public ImageSource {
 public:
  FakeCifar(uint64_t seed, int classes) : seed_(seed), classes_(classes) {}

  std::string description() const override {
    return "10,000 random pictures of 32x32";
  }
  int64_t size() const override { return 10'000; }
  int classes() const override { return classes_; }
  Framing framing() const override { return Framing::kWhole; }

  absl::Status Read(int64_t index, Image* image, int* label) const override {
    *image = MakeNoise(seed_, index, kSide, kSide);
    // A different seed from the pixels', because labels and pixels must not be
    // the same random numbers.
    *label = static_cast<int>(
        Random(~seed_, static_cast<uint64_t>(index)).Below(classes_));
    return absl::OkStatus();
  }

 private:
  uint64_t seed_;
  int classes_;
};

// The whole split stays in memory, as in torchvision: it is at most 184 MB.
class Cifar10 final : public ImageSource {
 public:
  Cifar10(std::vector<uint8_t> records, std::string description)
      : records_(std::move(records)), description_(std::move(description)) {}

  std::string description() const override { return description_; }
  int64_t size() const override {
    return static_cast<int64_t>(records_.size() / kRecord);
  }
  int classes() const override { return kCifarClasses; }
  Framing framing() const override { return Framing::kWhole; }

  absl::Status Read(int64_t index, Image* image, int* label) const override {
    const uint8_t* record = &records_[static_cast<size_t>(index) * kRecord];
    *label = record[0];
    image->width = image->height = kSide;
    image->pixels.resize(3 * kPlane);
    // Converts three planes to the interleaved RGB of an Image.
    for (size_t i = 0; i < kPlane; ++i) {
      for (size_t c = 0; c < 3; ++c) {
        image->pixels[i * 3 + c] = record[1 + c * kPlane + i];
      }
    }
    return absl::OkStatus();
  }

 private:
  std::vector<uint8_t> records_;
  std::string description_;
};

absl::Status Append(const std::string& path, std::vector<uint8_t>& records) {
  absl::StatusOr<std::vector<uint8_t>> bytes = ReadFile(path);
  if (!bytes.ok()) return bytes.status();
  if (bytes->empty() || bytes->size() % kRecord != 0) {
    return absl::DataLossError(
        "cannot read " + path + " as CIFAR-10: its size of " +
        std::to_string(bytes->size()) + " bytes is not a multiple of " +
        std::to_string(kRecord) +
        "; it is damaged, or it is CIFAR-100: unpack cifar-10-binary.tar.gz "
        "again");
  }
  // Checked here, where the file is known. Otherwise cross_entropy() would
  // report, steps later, only that a label is out of bounds.
  for (size_t at = 0; at < bytes->size(); at += kRecord) {
    if ((*bytes)[at] < kCifarClasses) continue;
    return absl::DataLossError("cannot read " + path +
                               " as CIFAR-10: the label at byte " +
                               std::to_string(at) + " is " +
                               std::to_string((*bytes)[at]) + ", above 9");
  }
  records.insert(records.end(), bytes->begin(), bytes->end());
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<ImageSource> MakeFakeCifar(uint64_t seed, int classes) {
  return std::make_unique<FakeCifar>(seed, classes);
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenCifar10(const std::string& dir,
                                                         bool train) {
  std::vector<std::string> paths;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(dir, code)) {
    std::string name = entry.path().filename().string();
    bool wanted =
        train ? name.starts_with("data_batch_") : name == "test_batch.bin";
    if (wanted && name.ends_with(".bin"))
      paths.push_back(entry.path().string());
  }
  // For OpenSources(), NotFound means "this is not CIFAR-10": it then looks for
  // folders of JPEG files.
  if (paths.empty()) {
    return absl::NotFoundError(
        "found no " +
        std::string(train ? "data_batch_*.bin" : "test_batch.bin") + " in " +
        dir + (code ? ": " + code.message() : ""));
  }
  // Sort, because a folder lists its files in any order, and a picture must
  // have the same number in every run.
  std::sort(paths.begin(), paths.end());
  std::vector<uint8_t> records;
  for (const std::string& path : paths) {
    if (absl::Status s = Append(path, records); !s.ok()) return s;
  }
  return std::make_unique<Cifar10>(
      std::move(records),
      "CIFAR-10 (" + std::string(train ? "training" : "test") + ") in " + dir);
}

}  // namespace resnet
