// Records a program that uses LibTorch, from its first operator on, after
// preload.cc has loaded the core into it. The window is that of plugins/inject,
// with the collectors of a shim.
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

// Global, because the function that on_first_operator() calls gets no pointer.
const stepscope_shim* g_shim = nullptr;

// Shapes are recorded, because rules about batches need them. Modules are not,
// because only an interpreter can name them, and these programs have none.
constexpr stepscope_torch_options kOptions = {.record_shapes = true,
                                              .profile_memory = false,
                                              .with_stack = false,
                                              .with_modules = false,
                                              .module_hook = {}};

// Runs after the code that ends the window, because that code is registered
// later.
void SayWhere() {
  const char* const folder = std::getenv("STEPSCOPE_LOG_DIR");
  if (folder == nullptr) return;
  std::error_code error;
  // The folder does not exist if the program ended before its window.
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
  // CheckShim() accepts null, for profiles without LibTorch. Here nothing could
  // be recorded without a shim.
  if (!status.ok() || shim == nullptr) return STEPSCOPE_E_FAILED;
  stepscope::g_shim = shim;
  return shim->on_first_operator(&stepscope::StartAtFirstOperator)
             ? STEPSCOPE_OK
             : STEPSCOPE_E_FAILED;
}
