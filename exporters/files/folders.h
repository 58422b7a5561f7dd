// The folders of a log directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

// The folder of a log directory that is stepscope's own.
inline constexpr const char* kOwnFolder = "stepscope";

// The names of the folders in `path`, and of the other files, sorted; empty if
// it cannot be read.
std::vector<std::string> FoldersIn(const std::filesystem::path& path);
std::vector<std::string> FilesIn(const std::filesystem::path& path);

bool IsFolder(const std::filesystem::path& path);

// The number in "c12"; -1 for other names.
int32_t CycleOf(std::string_view name);

// Cycles of the folder of a run whose traces were written, in order.
std::vector<int32_t> CyclesOf(const std::filesystem::path& run);

}  // namespace stepscope
