// Where the tests of this folder find what a GPU recorded. `bash
// tests/gpu/slot.sh` records first, into a folder per part, and then runs these
// tests with STEPSCOPE_GPU_RECORDED naming the folder of the parts: what was
// recorded is kept whatever a test says of it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace stepscope {

// The folder of a part; nullopt if slot.sh did not start this process.
inline std::optional<std::filesystem::path> FolderOfPart(
    const std::string& part) {
  const char* recorded = std::getenv("STEPSCOPE_GPU_RECORDED");
  if (recorded == nullptr) return std::nullopt;
  return std::filesystem::path(recorded) / part;
}

// Files of `folder` whose names contain `word`, by name. None if there is no
// such folder.
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

// A fake CUPTI stands in for the GPU: the work is that of the CPU's operators.
inline bool IsFake() { return std::getenv("STEPSCOPE_GPU_FAKE") != nullptr; }

}  // namespace stepscope
