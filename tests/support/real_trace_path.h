// Finds the traces that other people recorded (tests/data/traces/README.md).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace stepscope {

// The path of a trace, or "" if it is not at hand: those too large to be
// committed lie in shared/traces beside the checkout, or in the folder that
// STEPSCOPE_TRACES names.
inline std::string RealTracePath(const std::string& name) {
  const std::string data = STEPSCOPE_TEST_DATA;
  const char* named = std::getenv("STEPSCOPE_TRACES");
  for (const std::string& folder :
       {data + "/traces", std::string(named == nullptr ? "" : named),
        data + "/../../../shared/traces"}) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    if (!folder.empty() && std::filesystem::exists(path)) return path.string();
  }
  return "";
}

}  // namespace stepscope
