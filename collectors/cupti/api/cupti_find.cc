#include "cupti_find.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>
#include <vector>

namespace stepscope {
namespace {

constexpr const char* kSonames[] = {"libcupti.so.13", "libcupti.so.12",
                                    "libcupti.so"};

// Returns the folder of the first loaded object whose file name starts with
// `prefix`. Uses the loader's list, because the path is different in a wheel, a
// conda environment and a toolkit.
std::filesystem::path FolderOfLoaded(const char* prefix) {
  struct Search {
    const char* prefix;
    std::filesystem::path found;
  } search = {prefix, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* user) {
        auto& search = *static_cast<Search*>(user);
        if (object->dlpi_name == nullptr) return 0;
        const std::filesystem::path file = object->dlpi_name;
        if (!file.filename().string().starts_with(search.prefix)) return 0;
        search.found = file.parent_path();
        return 1;
      },
      &search);
  return search.found;
}

// Returns the existing files that may be CUPTI, best first.
std::vector<std::string> Candidates(const CuptiLibrary& library) {
  std::vector<std::string> files;
  // Preferred to all folders. Only a library that is already in the process
  // comes before it (OpenCupti()).
  if (const char* chosen = getenv("STEPSCOPE_CUPTI_LIBRARY")) {
    files.emplace_back(chosen);
  }
  std::vector<std::filesystem::path> folders;
  std::error_code error;
  std::filesystem::path torch = FolderOfLoaded("libtorch_cpu.so");
  if (torch.empty()) torch = library.torch_folder;
  if (!torch.empty()) {
    folders.push_back(torch);
    // If torch comes from PyPI, nvidia/*/lib is beside torch/lib.
    const std::filesystem::path nvidia =
        torch.parent_path().parent_path() / "nvidia";
    for (const auto& entry :
         std::filesystem::directory_iterator(nvidia, error)) {
      folders.push_back(entry.path() / "lib");
    }
    // Sort for a fixed order, with cu13 before cu12.
    std::sort(folders.begin() + 1, folders.end(), std::greater<>());
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* home = getenv(variable)) {
      folders.push_back(std::filesystem::path(home) / "extras/CUPTI/lib64");
    }
  }
  folders.emplace_back("/usr/local/cuda/extras/CUPTI/lib64");
  for (const auto& folder : folders) {
    for (const char* soname : kSonames) {
      const auto file = folder / soname;
      if (std::filesystem::exists(file, error)) files.push_back(file.string());
    }
  }
  // At the end, names without a folder, which the loader looks for in its usual
  // places.
  files.insert(files.end(), std::begin(kSonames), std::end(kSonames));
  return files;
}

}  // namespace

void* OpenCupti(const CuptiLibrary& library, std::string* failure) {
  // RTLD_NODELETE, because CUPTI's own threads may run in the library at any
  // time.
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  if (!library.path.empty()) {
    void* handle = dlopen(library.path.c_str(), kFlags);
    if (handle == nullptr) *failure = dlerror();
    return handle;
  }
  // If a library is already in the process, only that one works, because two
  // copies of CUPTI do not work together.
  for (const char* soname : kSonames) {
    if (void* handle = dlopen(soname, kFlags | RTLD_NOLOAD)) return handle;
  }
  for (const std::string& file : Candidates(library)) {
    if (void* handle = dlopen(file.c_str(), kFlags)) return handle;
    // Keep the first failure, because it belongs to the best candidate.
    if (failure->empty()) *failure = dlerror();
  }
  return nullptr;
}

}  // namespace stepscope
