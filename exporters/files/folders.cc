#include "files/folders.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

namespace stepscope {
namespace {

namespace fs = std::filesystem;

// Returns the names in `path` whose type `wanted` accepts. They are sorted,
// because a file system lists a folder in any order. A link counts as what it
// points to.
template <typename Wanted>
std::vector<std::string> EntriesOf(const fs::path& path, Wanted wanted) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (wanted(it->status(ignored).type()))
      names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Returns what a pipe, socket or device is; "" for files and folders.
std::string_view OddKind(fs::file_type type) {
  switch (type) {
    case fs::file_type::fifo:
      return "a pipe";
    case fs::file_type::socket:
      return "a socket";
    case fs::file_type::block:
    case fs::file_type::character:
      return "a device";
    default:
      return "";
  }
}

}  // namespace

std::vector<std::string> FoldersIn(const fs::path& path) {
  return EntriesOf(path, [](fs::file_type type) {
    return type == fs::file_type::directory;
  });
}

std::vector<std::string> FilesIn(const fs::path& path) {
  return EntriesOf(path, [](fs::file_type type) {
    return type != fs::file_type::directory && OddKind(type).empty();
  });
}

std::vector<std::pair<std::string, std::string>> PipesAndDevicesIn(
    const fs::path& path) {
  std::vector<std::pair<std::string, std::string>> found;
  const std::vector<std::string> names = EntriesOf(
      path, [](fs::file_type type) { return !OddKind(type).empty(); });
  for (const std::string& name : names) {
    std::error_code error;
    found.emplace_back(name, OddKind(fs::status(path / name, error).type()));
  }
  return found;
}

bool IsUnfinished(const fs::path& folder) {
  return std::ranges::any_of(FilesIn(folder), [](std::string_view name) {
    return name.ends_with(kTemporaryEnding);
  });
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
