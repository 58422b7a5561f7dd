// What one Python has installed of what stepscope works with. It is asked in a
// process of its own, and imports none of it.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

struct PythonPackages {
  std::string python_version;  // "3.11.2"
  std::string torch_version;   // "2.11.0+cu130"; empty if there is none
  std::string torch_folder;    // where libtorch_cpu.so is; empty if nowhere
  std::string tensorboard_version;
  // TensorBoard's plugins by the package they come with: "xprof 2.24.2".
  std::vector<std::string> tensorboard_plugins;
};

// The Python that a user of this shell gets: the virtual environment's, else
// the first python3 on the path.
std::string DefaultPython();

// Runs `python` (a path or a name on the path). Unavailable if it does not run
// or does not answer.
absl::StatusOr<PythonPackages> AskPython(const std::string& python);

// What the answer says: one "key value" per line; lines with keys nobody knows
// are passed over. Unavailable if it does not name a Python.
absl::StatusOr<PythonPackages> ParsePackages(std::string_view answer);

}  // namespace stepscope
