#include <algorithm>
#include <filesystem>
#include <map>

#include "data/image_source.h"
#include "data/jpeg_files.h"

namespace resnet {
namespace {

namespace fs = std::filesystem;

bool IsJpeg(const fs::path& path) {
  std::string end = path.extension().string();
  std::transform(end.begin(), end.end(), end.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return end == ".jpg" || end == ".jpeg";
}

// The classes are the sub-folders in alphabetical order, as in torchvision's
// ImageFolder. Unreadable folders count as empty.
std::map<std::string, std::vector<std::string>> FindClasses(
    const fs::path& dir) {
  std::map<std::string, std::vector<std::string>> classes;
  std::error_code code;
  for (const auto& folder : fs::directory_iterator(dir, code)) {
    if (!folder.is_directory(code)) continue;
    std::vector<std::string> files;
    for (const auto& file : fs::directory_iterator(folder.path(), code)) {
      if (IsJpeg(file.path())) files.push_back(file.path().string());
    }
    // Not a class, because no picture would have its label.
    if (files.empty()) continue;
    std::sort(files.begin(), files.end());
    classes[folder.path().filename().string()] = std::move(files);
  }
  return classes;
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenFolder(const fs::path& dir,
                                                        int classes) {
  std::vector<LabelledFile> files;
  int label = 0;
  // The map is sorted by name, so each class gets the same label as in
  // torchvision.
  for (const auto& [name, paths] : FindClasses(dir)) {
    for (const std::string& path : paths) files.push_back({path, label});
    ++label;
  }
  if (files.empty()) {
    return absl::NotFoundError(
        "found nothing to train on in " + dir.string() +
        ": neither data_batch_*.bin nor sub-folders with JPEG files; --data "
        "takes jpeg, fakecifar or such a folder");
  }
  if (classes != 0 && classes < label) {
    return absl::InvalidArgumentError("--classes " + std::to_string(classes) +
                                      " is too few: " + dir.string() + " has " +
                                      std::to_string(label) + " class folders");
  }
  // There may be more classes than folders. The network then has outputs that
  // are never right, and a larger last layer takes its time.
  return MakeJpegSource(std::move(files), std::max(classes, label),
                        dir.string());
}

absl::StatusOr<Sources> OpenMadeJpegs(
    const SourceRequest& request,
    const std::function<void(const std::string&)>& say) {
  JpegSet set;
  std::string dir =
      request.jpeg_cache.empty() ? DefaultJpegCache(set) : request.jpeg_cache;
  int said = 0;
  absl::StatusOr<std::vector<std::string>> paths =
      MakeJpegFiles(dir, set, [&](int done) {
        if (said == 0) say("making JPEG files once, in " + dir);
        // `on_progress` is called five times per second, but one line per 250
        // files is enough.
        if (done / 250 > said / 250 || said == 0) {
          say("made " + std::to_string(done));
        }
        said = std::max(done, 1);
      });
  if (!paths.ok()) return paths.status();
  int classes = request.classes == 0 ? 1000 : request.classes;
  std::vector<LabelledFile> files;
  for (size_t i = 0; i < paths->size(); ++i) {
    // The label is the kind of scene that MakeOne() drew, so that there is
    // something to learn.
    int label = static_cast<int>(i % static_cast<size_t>(set.kinds));
    files.push_back({(*paths)[i], label % classes});
  }
  std::string description = std::to_string(set.count) + " JPEG files of " +
                            std::to_string(set.width) + "x" +
                            std::to_string(set.height) + " in " + dir;
  Sources sources;
  // Both use the same pictures, because the artificial set is not split.
  sources.validate = MakeJpegSource(files, classes, description);
  sources.train = MakeJpegSource(std::move(files), classes, description);
  return sources;
}

absl::StatusOr<Sources> OpenGiven(const SourceRequest& request) {
  fs::path dir = request.data;
  std::error_code code;
  if (!fs::is_directory(dir, code)) {
    return absl::NotFoundError("--data " + request.data +
                               " is neither jpeg, nor fakecifar, nor a folder "
                               "that can be read");
  }
  Sources sources;
  absl::StatusOr<std::unique_ptr<ImageSource>> train =
      OpenCifar10(request.data, true);
  if (train.ok()) {
    sources.train = *std::move(train);
    absl::StatusOr<std::unique_ptr<ImageSource>> test =
        OpenCifar10(request.data, false);
    if (test.ok()) sources.validate = *std::move(test);
    if (!test.ok()) return test.status();
    if (request.classes != 0 && request.classes < sources.train->classes()) {
      return absl::InvalidArgumentError("--classes " +
                                        std::to_string(request.classes) +
                                        " is too few: CIFAR-10 has 10");
    }
    return sources;
  }
  // Damaged CIFAR files are an error. Only if there are none may the folder
  // contain JPEG files.
  if (!absl::IsNotFound(train.status())) return train.status();
  for (bool is_train : {true, false}) {
    fs::path part = dir / (is_train ? "train" : "val");
    // A folder without train/ and val/ is used for both.
    if (!fs::is_directory(part, code)) part = dir;
    absl::StatusOr<std::unique_ptr<ImageSource>> source =
        OpenFolder(part, request.classes);
    if (!source.ok()) return source.status();
    (is_train ? sources.train : sources.validate) = *std::move(source);
  }
  return sources;
}

}  // namespace

absl::StatusOr<Sources> OpenSources(
    const SourceRequest& request,
    const std::function<void(const std::string&)>& say) {
  if (request.data == "jpeg") return OpenMadeJpegs(request, say);
  if (request.data == "fakecifar") {
    int classes = request.classes == 0 ? 10 : request.classes;
    // A different seed, so that validation uses other pictures than training.
    return Sources{MakeFakeCifar(request.seed, classes),
                   MakeFakeCifar(request.seed + 1, classes)};
  }
  return OpenGiven(request);
}

}  // namespace resnet
