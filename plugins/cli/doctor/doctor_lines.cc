#include "doctor/doctor_lines.h"

#include <algorithm>
#include <string_view>

namespace stepscope {
namespace {

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ", ";
    text += word;
  }
  return text;
}

DoctorLine TorchLine(const std::string& python,
                     const PythonPackages& packages) {
  if (packages.torch_version.empty()) {
    return {.topic = "torch",
            .found = "not installed in " + python,
            .remedy =
                "pip install torch, or name the Python that has it with "
                "--python or STEPSCOPE_PYTHON; analysing traces does not need "
                "it",
            .ok = false};
  }
  std::string found = packages.torch_version;
  if (packages.torch_folder.empty()) {
    return {.topic = "torch",
            .found = found + ", without libtorch_cpu.so",
            .remedy =
                "install the wheel from PyPI or download.pytorch.org: "
                "stepscope links to its libraries",
            .ok = false};
  }
  return {.topic = "torch",
          .found = found + " (" + packages.torch_folder + ")",
          .remedy = "",
          .ok = true};
}

DoctorLine TensorBoardLine(const std::string& python,
                           const PythonPackages& packages) {
  if (packages.tensorboard_version.empty()) {
    return {.topic = "TensorBoard",
            .found = "not installed in " + python,
            .remedy =
                "pip install tensorboard xprof to view log directories in "
                "a browser, or name the Python that has it with --viewers",
            .ok = false};
  }
  return {.topic = "TensorBoard",
          .found = packages.tensorboard_version + " (" + python + ")",
          .remedy = "",
          .ok = true};
}

// XProf is the maintained plugin. torch-tb-profiler is deprecated, so it is
// listed if it is installed, but its absence is not a problem.
DoctorLine PluginsLine(const std::string& python,
                       const PythonPackages& packages) {
  const bool xprof = std::any_of(
      packages.tensorboard_plugins.begin(), packages.tensorboard_plugins.end(),
      [](std::string_view name) {
        return name.starts_with("xprof ") ||
               name.starts_with("tensorboard-plugin-profile ") ||
               name.starts_with("tensorboard_plugin_profile ");
      });
  DoctorLine line = {.topic = "plugins",
                     .found = Joined(packages.tensorboard_plugins),
                     .remedy = "",
                     .ok = xprof};
  if (line.found.empty()) line.found = "none";
  if (!xprof) {
    line.found += ", no xprof";
    line.remedy =
        "pip install xprof for TensorBoard's overview, input pipeline, "
        "kernel and memory views";
  }
  line.found += " (" + python + ")";
  return line;
}

// A line that says whether this Python runs.
DoctorLine PythonLine(const std::string& topic, const AskedPython& asked,
                      const std::string& remedy) {
  if (asked.packages.ok()) {
    return {.topic = topic,
            .found = asked.packages->python_version + " (" + asked.python + ")",
            .remedy = "",
            .ok = true};
  }
  const auto why = asked.packages.status().message();
  return {.topic = topic,
          .found = asked.python + " " + std::string(why.data(), why.size()),
          .remedy = remedy,
          .ok = false};
}

}  // namespace

std::vector<DoctorLine> PackageLines(const AskedPython& torch,
                                     const AskedPython& viewers) {
  std::vector<DoctorLine> lines = {PythonLine(
      "Python", torch,
      "name the Python that has torch with --python or STEPSCOPE_PYTHON, and "
      "the one that has TensorBoard with --viewers; C++ programs need "
      "neither")};
  if (torch.packages.ok())
    lines.push_back(TorchLine(torch.python, *torch.packages));
  if (viewers.python != torch.python) {
    lines.push_back(
        PythonLine("viewers", viewers,
                   "name the Python that has TensorBoard with --viewers"));
  }
  if (viewers.packages.ok()) {
    lines.push_back(TensorBoardLine(viewers.python, *viewers.packages));
    lines.push_back(PluginsLine(viewers.python, *viewers.packages));
  }
  return lines;
}

std::string DoctorText(const std::vector<DoctorLine>& lines) {
  size_t width = 0;
  for (const DoctorLine& line : lines)
    width = std::max(width, line.topic.size());
  std::string text;
  for (const DoctorLine& line : lines) {
    // "--": not ok, but nothing has to be fixed.
    const bool must_fix = !line.remedy.empty() && !line.no_gpu;
    text += line.ok ? "ok   " : must_fix ? "fix  " : "--   ";
    text += line.topic + std::string(width + 2 - line.topic.size(), ' ');
    text += line.found;
    if (!line.remedy.empty()) text += " -> " + line.remedy;
    text += "\n";
  }
  return text;
}

}  // namespace stepscope
