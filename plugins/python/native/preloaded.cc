// Records a program of LibTorch into which preload.cc brought the core, from
// its first operator on: a window of plugins/inject, with the collectors of a
// shim.
#include <stepscope/collectors.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "injected.h"
#include "optional_sources.h"
#include "running_profile.h"
#include "shim.h"

namespace stepscope {
namespace {

const stepscope_shim* g_shim = nullptr;

constexpr stepscope_torch_options kOptions = {.record_shapes = true,
                                              .profile_memory = false,
                                              .with_stack = false,
                                              .with_modules = false,
                                              .module_hook = {}};

// Runs after the end of the window, which registers itself later.
void SayWhere() {
  const char* const folder = std::getenv("STEPSCOPE_LOG_DIR");
  if (folder == nullptr) return;
  std::error_code error;
  if (!std::filesystem::exists(std::string(folder) + "/stepscope", error))
    return;
  std::fprintf(stderr, "stepscope: the report: stepscope analyze %s\n", folder);
}

void StartAtFirstOperator() {
  std::atexit(&SayWhere);
  StartInjected();
}

}  // namespace

void AddTorch(std::vector<std::unique_ptr<Collector>>& collectors) {
  if (g_shim == nullptr) return;
  for (Collector* made :
       {g_shim->make_allocator(), g_shim->make_torch(&kOptions)}) {
    if (made != nullptr) collectors.emplace_back(made);
  }
}

std::shared_ptr<CaptureScopes> TorchCaptureScopes() {
  if (g_shim == nullptr) return nullptr;
  return std::shared_ptr<CaptureScopes>(g_shim->make_capture_scopes(&kOptions));
}

}  // namespace stepscope

extern "C" int stepscope_record_program(const stepscope_shim* shim) {
  const absl::Status status = stepscope::CheckShim(shim);
  if (!status.ok() || shim == nullptr) return STEPSCOPE_E_FAILED;
  stepscope::g_shim = shim;
  return shim->on_first_operator(&stepscope::StartAtFirstOperator)
             ? STEPSCOPE_OK
             : STEPSCOPE_E_FAILED;
}
