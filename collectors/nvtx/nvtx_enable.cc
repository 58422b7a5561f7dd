#include "nvtx_enable.h"

#include <dlfcn.h>
#include <stepscope/nvtx.h>

#include <cstdlib>
#include <string>

#include "nvtx_injection.h"

namespace stepscope {
namespace {

constexpr char kVariable[] = "NVTX_INJECTION64_PATH";
constexpr char kSymbol[] = "InitializeInjectionNvtx2";

// Returns the function that NVTX would find if the variable had this value, or
// null. `flags` are passed to dlopen(): RTLD_NOLOAD finds only loaded
// libraries.
void* Found(const char* value, int flags) {
  void* const library = dlopen(value, RTLD_LAZY | flags);
  if (library == nullptr) return nullptr;
  void* const symbol = dlsym(library, kSymbol);
  dlclose(library);
  return symbol;
}

struct Reach {
  absl::Status status;
  bool one_binary = false;
};

// NVTX reads the variable, or looks for the symbol in the program, at each
// binary's first call. Three cases: another tool is already there; the program
// exports the symbol; only this library has the symbol, and the variable is set
// to the library's path.
Reach Enable() {
  void* const ours = reinterpret_cast<void*>(&InitializeInjectionNvtx2);
  if (const char* set = std::getenv(kVariable)) {
    if (Found(set, RTLD_NOLOAD) == ours) return {};
    return {.status = absl::UnavailableError(
                std::string("NVTX: this process's ranges go to \"") + set +
                "\", as NVTX_INJECTION64_PATH says; unset it to have them "
                "recorded here")};
  }
  // "" stands for the program itself, as in dlopen().
  if (Found("", RTLD_NOLOAD) == ours) {
    setenv(kVariable, "", /*overwrite=*/0);
    return {};
  }
  Dl_info binary;
  if (dladdr(ours, &binary) != 0 && binary.dli_fname != nullptr) {
    char* const path = realpath(binary.dli_fname, nullptr);
    const bool found = path != nullptr && Found(path, RTLD_NOLOAD) == ours;
    if (found) setenv(kVariable, path, /*overwrite=*/0);
    std::free(path);
    if (found) return {};
  }
  return {.status = absl::OkStatus(), .one_binary = true};
}

// Done once per process, because the variable outlives the collector.
const Reach& Enabled() {
  static const Reach* const reach = new Reach(Enable());
  return *reach;
}

}  // namespace

absl::Status EnableNvtx() { return Enabled().status; }

bool NvtxReachesOneBinary() { return Enabled().one_binary; }

}  // namespace stepscope
