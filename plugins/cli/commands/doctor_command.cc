#include <absl/status/status.h>
#include <stepscope/doctor.h>

#include <algorithm>
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

constexpr Option kOptions[] = {
    {.name = "--python",
     .value = "PATH",
     .help = "the Python that has torch (default: STEPSCOPE_PYTHON, else the "
             "active environment's, else python3)"},
    {.name = "--viewers",
     .value = "PATH",
     .help = "the Python that has TensorBoard (default: the same)"},
    {.name = "--gpu", .help = "require a GPU: report a machine without one"}};

int RunDoctor(const CommandWords& given) {
  if (!given.arguments.empty()) {
    return UsageError(
        "doctor takes no path; the options --python and --viewers do");
  }
  const std::string python =
      given.has("--python") ? given.value("--python") : DefaultPython();
  // Ask Python first: CUPTI is looked for where torch is, and once this process
  // has initialised CUDA it must not fork.
  const AskedPython torch = {python, AskPython(python)};
  // Each question starts an interpreter. Usually one environment has all
  // packages, and it is asked only once.
  const std::string viewer = given.value("--viewers");
  const AskedPython viewers = viewer.empty() || viewer == python
                                  ? torch
                                  : AskedPython{viewer, AskPython(viewer)};
  std::vector<DoctorLine> lines =
      DeviceLines(torch.packages.ok() ? torch.packages->torch_folder : "");
  for (DoctorLine& line : PackageLines(torch, viewers))
    lines.push_back(std::move(line));
  // `no_gpu` excuses things that a machine without a GPU lacks. --gpu withdraws
  // the excuse, for machines that should have a GPU.
  for (DoctorLine& line : lines) line.no_gpu &= !given.has("--gpu");
  const int status =
      WriteResult(FitLines(DoctorText(lines), WidthFor("", 0)), "");
  const bool well = std::ranges::all_of(
      lines, [](const DoctorLine& line) { return line.ok || line.no_gpu; });
  return well ? status : 1;
}

}  // namespace

const Command kDoctorCommand = {
    .name = "doctor",
    .arguments = "",
    .summary = "check what recording and viewing need here",
    .description =
        "Checks what recording and viewing need: the driver, CUPTI and whether "
        "another profiler holds it, the permission to profile, torch, "
        "TensorBoard and its plugins. Prints a line for each: \"ok\"; \"fix\" "
        "with what to do; or \"--\" where nothing is to be done, or it could "
        "not be checked. A machine without a GPU needs nothing for one, unless "
        "--gpu asks for it.",
    .options = kOptions,
    .exit_status =
        "0 nothing is missing, 1 something is missing, 2 wrong usage.",
    .completes = Arguments::kNone,
    .run = RunDoctor};

}  // namespace stepscope
