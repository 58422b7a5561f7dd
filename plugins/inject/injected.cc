#include "injected.h"

#include <stepscope/nvtx.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "step_window.h"
#include "time_window.h"
#include "window_options.h"

namespace stepscope {
namespace {

void Say(const absl::Status& status) {
  const std::string text(status.message().data(), status.message().size());
  std::fprintf(stderr, "stepscope: %s\n", text.c_str());
}

std::string ProgramName() {
  const char* const name = program_invocation_short_name;
  return name == nullptr || *name == '\0' ? "program" : name;
}

// Enables NVTX first, because the variable must be set before the program's
// other binaries make their first NVTX call.
void Start() {
  const absl::Status nvtx = EnableNvtx();
  const absl::StatusOr<WindowOptions> options = WindowOptionsFrom(
      [](const char* name) { return std::getenv(name); }, ProgramName());
  if (!options.ok()) return Say(options.status());
  if (options->step_range.empty()) return StartTimeWindow(*options);
  if (!nvtx.ok()) return Say(nvtx);  // without ranges there are no steps
  StartStepWindow(*options);
}

}  // namespace

// NVTX and the driver may both call this, at the same moment and from any
// thread.
void StartInjected() noexcept {
  static std::once_flag once;
  try {
    std::call_once(once, Start);
  } catch (...) {
    std::fputs(
        "stepscope: the injection could not start; the program runs on "
        "unprofiled\n",
        stderr);
  }
}

}  // namespace stepscope
