// The folders of a log directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stepscope {

// The name of stepscope's own folder in a log directory.
inline constexpr const char* kOwnFolder = "stepscope";

// Returns the names of the folders in `path`, sorted; empty if `path` cannot be
// read.
std::vector<std::string> FoldersIn(const std::filesystem::path& path);
// Returns the names of the files in `path`, sorted. Leaves out pipes, sockets
// and devices, because opening one may block for ever.
std::vector<std::string> FilesIn(const std::filesystem::path& path);
// Returns the names of the pipes, sockets and devices in `path`, sorted, each
// with what it is: "a pipe", "a socket", "a device".
std::vector<std::pair<std::string, std::string>> PipesAndDevicesIn(
    const std::filesystem::path& path);

bool IsFolder(const std::filesystem::path& path);

// Returns the number in "c12"; -1 for other names.
int32_t CycleOf(std::string_view name);

// The ending of a file that FileSink has not completed. The file keeps it if
// the process was killed.
inline constexpr std::string_view kTemporaryEnding = ".tmp";

// True if a file in `folder` is being written, or was when its process was
// killed.
bool IsUnfinished(const std::filesystem::path& folder);

// Returns the cycles with any traces in the folder of a run, in ascending
// order.
std::vector<int32_t> CyclesOf(const std::filesystem::path& run);

}  // namespace stepscope
