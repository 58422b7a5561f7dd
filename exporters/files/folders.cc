#include "files/folders.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace stepscope {
namespace {

namespace fs = std::filesystem;

// Sorted, because a file system lists a folder in any order. An entry that
// cannot be asked for its type counts as a file.
std::vector<std::string> EntriesOf(const fs::path& path, bool folders) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored) == folders)
      names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<std::string> FoldersIn(const fs::path& path) {
  return EntriesOf(path, true);
}

std::vector<std::string> FilesIn(const fs::path& path) {
  return EntriesOf(path, false);
}

bool IsFolder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

int32_t CycleOf(std::string_view name) {
  int32_t cycle = -1;
  if (name.size() < 2 || name[0] != 'c') return -1;
  const char* end = name.data() + name.size();
  const auto result = std::from_chars(name.data() + 1, end, cycle);
  return result.ec == std::errc() && result.ptr == end ? cycle : -1;
}

std::vector<int32_t> CyclesOf(const fs::path& run) {
  std::vector<int32_t> cycles;
  for (const std::string& name : FoldersIn(run)) {
    const int32_t cycle = CycleOf(name);
    std::error_code error;
    if (cycle >= 0 && IsFolder(run / name / "trace") &&
        !fs::is_empty(run / name / "trace", error)) {
      cycles.push_back(cycle);
    }
  }
  std::sort(cycles.begin(), cycles.end());
  return cycles;
}

}  // namespace stepscope
