// Finds GPU recordings for the tests of this folder. `bash tests/gpu/slot.sh`
// first records into one folder per part. Then it runs these tests with
// STEPSCOPE_GPU_RECORDED set to the parent folder. The recordings are kept even
// if a test fails.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace stepscope {

// Returns the folder of a part; nullopt if slot.sh did not start this process.
inline std::optional<std::filesystem::path> FolderOfPart(
    const std::string& part) {
  const char* recorded = std::getenv("STEPSCOPE_GPU_RECORDED");
  if (recorded == nullptr) return std::nullopt;
  return std::filesystem::path(recorded) / part;
}

// Returns the files in `folder` whose names contain `word`, sorted by name;
// none if there is no such folder.
inline std::vector<std::string> FilesWith(const std::filesystem::path& folder,
                                          const std::string& word) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().string().find(word) != std::string::npos)
      found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// True if a fake CUPTI replaces the GPU, so that operators run on the CPU.
inline bool IsFake() { return std::getenv("STEPSCOPE_GPU_FAKE") != nullptr; }

}  // namespace stepscope
