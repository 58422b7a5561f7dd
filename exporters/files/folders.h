// The folders of a log directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stepscope {

// The folder of a log directory that is stepscope's own.
inline constexpr const char* kOwnFolder = "stepscope";

// The names of the folders in `path`, sorted; empty if it cannot be read.
std::vector<std::string> FoldersIn(const std::filesystem::path& path);
// The same of its files. Pipes, sockets and devices are not among them: opening
// one may wait for ever.
std::vector<std::string> FilesIn(const std::filesystem::path& path);
// The same of those, each with what it is: "a pipe", "a socket", "a device".
std::vector<std::pair<std::string, std::string>> PipesAndDevicesIn(
    const std::filesystem::path& path);

bool IsFolder(const std::filesystem::path& path);

// The number in "c12"; -1 for other names.
int32_t CycleOf(std::string_view name);

// What a writer gives a file until it is complete (FileSink). It stays where
// the process was killed.
inline constexpr std::string_view kTemporaryEnding = ".tmp";

// True if a file in `folder` is being written, or was when its process was
// killed.
bool IsUnfinished(const std::filesystem::path& folder);

// Cycles of the folder of a run whose traces were written, in order.
std::vector<int32_t> CyclesOf(const std::filesystem::path& run);

}  // namespace stepscope
