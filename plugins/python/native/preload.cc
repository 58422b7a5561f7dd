// LD_PRELOAD of `stepscope run -- ./train`: loads the recorder into a program
// of LibTorch. It does nothing in any other, and needs nothing but libc, so
// that every process below can load it. run.py sets the variables.
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace {

using Shim = const void* (*)();
using Record = int (*)(const void* shim);

// Writes the path of a file in the folder of this library; false if it is too
// long.
bool Beside(const char* name, char (&path)[PATH_MAX]) {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&Beside), &self) == 0) return false;
  const char* const slash = strrchr(self.dli_fname, '/');
  const int folder = slash ? static_cast<int>(slash - self.dli_fname + 1) : 0;
  const int size =
      snprintf(path, sizeof(path), "%.*s%s", folder, self.dli_fname, name);
  return size > 0 && size < PATH_MAX;
}

// True if the library is that file, by whatever name.
bool IsFile(void* library, const char* expected) {
  link_map* map = nullptr;
  char found[PATH_MAX];
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 &&
         realpath(map->l_name, found) != nullptr &&
         strcmp(found, expected) == 0;
}

void Unrecorded(const char* why) {
  fprintf(stderr, "stepscope: this program is not recorded: %s\n", why);
}

__attribute__((constructor)) void LoadRecorder() {
  const char* const shim = getenv("STEPSCOPE_PRELOAD_SHIM");
  const char* const expected = getenv("STEPSCOPE_PRELOAD_LIBTORCH");
  if (shim == nullptr || expected == nullptr) return;
  // RTLD_NOLOAD only asks whether it is there. A program that opens LibTorch
  // later, by dlopen(), is not recorded.
  void* const torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr) return;
  // The shim was built for one version of LibTorch; its hooks would misread the
  // structures of another.
  if (!IsFile(torch, expected)) {
    return Unrecorded(
        "it uses another LibTorch than the one `stepscope run` "
        "started");
  }
  char core[PATH_MAX];
  if (!Beside("libstepscope_core.so", core)) return;
  // First, because the shim links the core and must find this copy.
  void* const core_library = dlopen(core, RTLD_NOW);
  void* const shim_library =
      core_library == nullptr ? nullptr : dlopen(shim, RTLD_NOW);
  if (shim_library == nullptr) return Unrecorded(dlerror());
  const auto functions =
      reinterpret_cast<Shim>(dlsym(shim_library, "stepscope_torch_shim"));
  const auto record =
      reinterpret_cast<Record>(dlsym(core_library, "stepscope_record_program"));
  if (functions == nullptr || record == nullptr) {
    return Unrecorded(
        "the files of the package are of different versions; install it again");
  }
  if (record(functions()) != 0) {
    Unrecorded("the recorder was built for another LibTorch or did not start");
  }
}

}  // namespace
