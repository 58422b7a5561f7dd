#include <utility>

#include "data/image_source.h"
#include "data/jpeg_files.h"

namespace resnet {
namespace {

class JpegSource final : public ImageSource {
 public:
  JpegSource(std::vector<LabelledFile> files, int classes,
             std::string description)
      : files_(std::move(files)),
        classes_(classes),
        description_(std::move(description)) {}

  std::string description() const override { return description_; }
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  int classes() const override { return classes_; }
  Framing framing() const override { return Framing::kRandomResizedCrop; }

  absl::Status Read(int64_t index, Image* image, int* label) const override {
    const LabelledFile& file = files_[static_cast<size_t>(index)];
    absl::StatusOr<std::vector<uint8_t>> bytes = ReadFile(file.path);
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<Image> decoded = DecodeJpeg(*bytes, file.path);
    if (!decoded.ok()) return decoded.status();
    *image = *std::move(decoded);
    *label = file.label;
    return absl::OkStatus();
  }

 private:
  std::vector<LabelledFile> files_;
  int classes_;
  std::string description_;
};

}  // namespace

std::unique_ptr<ImageSource> MakeJpegSource(std::vector<LabelledFile> files,
                                            int classes,
                                            std::string description) {
  return std::make_unique<JpegSource>(std::move(files), classes,
                                      std::move(description));
}

}  // namespace resnet
