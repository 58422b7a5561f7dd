// The packages of one Python that stepscope works with. Python runs in a
// separate process and does not import the packages.
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
  // TensorBoard's plugins, named by the package they come with: "xprof 2.24.2".
  std::vector<std::string> tensorboard_plugins;
};

// Returns the Python of this shell: STEPSCOPE_PYTHON, else that of the active
// virtual environment, else python3.
std::string DefaultPython();

// Runs `python` (a path, or a name on PATH) and waits for it. Errors:
// Unavailable if it does not run or does not answer.
absl::StatusOr<PythonPackages> AskPython(const std::string& python);

// Parses an answer with one "key value" per line. Unknown keys are skipped.
// Errors: Unavailable if it has no Python version.
absl::StatusOr<PythonPackages> ParsePackages(std::string_view answer);

}  // namespace stepscope
