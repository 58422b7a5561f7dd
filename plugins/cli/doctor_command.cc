#include <absl/status/status.h>
#include <stepscope/doctor.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "command_words.h"
#include "commands.h"
#include "doctor/doctor_lines.h"
#include "doctor/python_packages.h"
#include "errors.h"
#include "output.h"

namespace stepscope {
namespace {

constexpr OptionName kOptions[] = {{"--python"}, {"--viewers"}};

constexpr const char* kUsage =
    R"(Usage: stepscope doctor [--python PATH] [--viewers PATH]

Checks what recording and viewing need: the driver, CUPTI and whether another
profiler holds it, the permission to profile, torch, TensorBoard and its plugins.
Prints a line for each: "ok", "fix" with what to do, or "--" where it could not
be checked.

Options:
  --python PATH   the Python that has torch (default: the active environment's,
                  else python3)
  --viewers PATH  the Python that has TensorBoard (default: the same)
  --help, -h      print this text

Exit status: 0 nothing is missing, 1 something is missing, 2 wrong usage.
)";

}  // namespace

int DoctorCommand(Words words) {
  const auto given = ParseCommandWords(words, kOptions);
  if (!given.ok()) return UsageError(given.status());
  if (given->has("--help")) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (!given->arguments.empty()) {
    return UsageError(
        "doctor takes no path; its options are --python PATH and --viewers "
        "PATH");
  }
  const std::string python =
      given->has("--python") ? given->value("--python") : DefaultPython();
  // Python first: CUPTI is looked for where torch is, and a process that has
  // initialised CUDA must not fork.
  const AskedPython torch = {python, AskPython(python)};
  const std::string viewer = given->value("--viewers");
  const AskedPython viewers = viewer.empty() || viewer == python
                                  ? torch
                                  : AskedPython{viewer, AskPython(viewer)};
  std::vector<DoctorLine> lines =
      DeviceLines(torch.packages.ok() ? torch.packages->torch_folder : "");
  for (DoctorLine& line : PackageLines(torch, viewers))
    lines.push_back(std::move(line));
  const int status = WriteResult(DoctorText(lines), "");
  const bool well = std::ranges::all_of(
      lines, [](const DoctorLine& line) { return line.ok; });
  return well ? status : 1;
}

}  // namespace stepscope
