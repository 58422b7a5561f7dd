#include "doctor/python_packages.h"

#include <absl/status/status.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

namespace stepscope {
namespace {

// Finds packages without importing them, because `import torch` takes seconds
// and can fail for reasons that do not matter here.
constexpr const char* kQuestion = R"(
import importlib.metadata as metadata, importlib.util, os, runpy, sys
print("python", sys.version.split()[0])
found = importlib.util.find_spec("torch")
if found and found.origin:
    folder = os.path.dirname(found.origin)
    about = runpy.run_path(os.path.join(folder, "version.py"))
    print("torch", about["__version__"])
    if os.path.exists(os.path.join(folder, "lib", "libtorch_cpu.so")):
        print("torch_folder", os.path.join(folder, "lib"))
try:
    print("tensorboard", metadata.version("tensorboard"))
except metadata.PackageNotFoundError:
    pass
plugins = set()
for package in metadata.distributions():
    if package.metadata["Name"] != "tensorboard" and any(entry.group == "tensorboard_plugins" for entry in package.entry_points):
        plugins.add(package.metadata["Name"] + " " + package.version)
for plugin in sorted(plugins):
    print("plugin", plugin)
)";

// Quotes `text` as one word of a shell command.
std::string Quoted(std::string_view text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

}  // namespace

std::string DefaultPython() {
  const char* chosen = std::getenv("STEPSCOPE_PYTHON");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  const char* environment = std::getenv("VIRTUAL_ENV");
  if (environment == nullptr || *environment == '\0') return "python3";
  return std::string(environment) + "/bin/python";
}

absl::StatusOr<PythonPackages> ParsePackages(std::string_view answer) {
  PythonPackages packages;
  while (!answer.empty()) {
    const size_t end = answer.find('\n');
    const std::string_view line = answer.substr(0, end);
    answer.remove_prefix(end == std::string_view::npos ? answer.size()
                                                       : end + 1);
    // Skip other output, such as that of a startup file.
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos) continue;
    const std::string_view key = line.substr(0, blank);
    const std::string value(line.substr(blank + 1));
    if (key == "python") packages.python_version = value;
    if (key == "torch") packages.torch_version = value;
    if (key == "torch_folder") packages.torch_folder = value;
    if (key == "tensorboard") packages.tensorboard_version = value;
    if (key == "plugin") packages.tensorboard_plugins.push_back(value);
  }
  if (packages.python_version.empty())
    return absl::UnavailableError("does not answer like a Python");
  return packages;
}

absl::StatusOr<PythonPackages> AskPython(const std::string& python) {
  // The path is quoted against shell syntax. The interpreter's errors are
  // hidden, and it cannot wait for input.
  const std::string command =
      Quoted(python) + " -c " + Quoted(kQuestion) + " 2>/dev/null </dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return absl::UnavailableError("cannot be started");
  std::string answer;
  char block[4096];
  size_t bytes = 0;
  while ((bytes = std::fread(block, 1, sizeof(block), pipe)) > 0)
    answer.append(block, bytes);
  const int status = pclose(pipe);
  // The shell returns 126 for "cannot run it" and 127 for "no such file".
  if (WIFEXITED(status) && WEXITSTATUS(status) >= 126)
    return absl::UnavailableError("does not run");
  return ParsePackages(answer);
}

}  // namespace stepscope
