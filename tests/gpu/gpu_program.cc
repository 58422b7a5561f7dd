// Runs GPU work under profilers, stage by stage, in one process:
//
//   gpu_program FOLDER STAGE...
//
// Writes the files that GpuStages() describes to FOLDER/N_STAGE. N continues
// from the number of files already there. If a stage fails, its error goes to
// stderr and the next stage runs.
//
// Linked to LibTorch's CPU half; CUDA is loaded at run time, so that this
// builds anywhere. If STEPSCOPE_GPU_FAKE is set, a fake CUPTI is preloaded and
// the work runs on the CPU. Exit status: 77: no GPU (stderr says why); 1: a
// stage failed; 2: wrong arguments.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu/gpu_stages.h"
#include "gpu/gpu_work.h"

namespace {

using stepscope::GpuStage;
using stepscope::GpuStages;
using stepscope::GpuWork;

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kSkipped = 77;

int Say(const std::string& text, int status) {
  std::fprintf(stderr, "gpu_program: %s\n", text.c_str());
  return status;
}

int Usage() {
  std::fprintf(stderr, "usage: gpu_program FOLDER STAGE...\nstages:\n");
  for (const GpuStage& stage : GpuStages()) {
    std::fprintf(stderr, "  %-12s %s\n", stage.name.c_str(),
                 stage.leaves.c_str());
  }
  return kUsage;
}

// Makes CUDA calls, because a profiler that ended may detach only in such a
// call.
void Settle(GpuWork& work) {
  for (int i = 0; i < 3; ++i) {
    work.Round();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// Runs a stage. Returns true if it succeeded.
bool RunStage(const GpuStage& stage, GpuWork& work, const std::string& prefix) {
  std::string why;
  try {
    const absl::Status status = stage.run(work, prefix);
    if (!status.ok()) why = std::string(status.message());
  } catch (const std::exception& error) {
    why = error.what();
  }
  const std::string result = why.empty() ? "done" : "failed: " + why;
  std::fprintf(stderr, "gpu_program: %s: %s\n", stage.name.c_str(),
               result.c_str());
  return why.empty();
}

int RunStages(const std::string& folder, const std::vector<GpuStage>& stages,
              bool fake) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Say("cannot make " + folder, kFailed);
  at::manual_seed(1);
  GpuWork work(fake);
  bool failed = false;
  auto number = std::distance(fs::directory_iterator(folder), {});
  for (const GpuStage& stage : stages) {
    failed |=
        !RunStage(stage, work,
                  folder + "/" + std::to_string(number++) + "_" + stage.name);
    Settle(work);
  }
  return failed ? kFailed : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return Usage();
  std::vector<GpuStage> stages;
  for (int i = 2; i < argc; ++i) {
    const auto found =
        std::ranges::find(GpuStages(), std::string(argv[i]), &GpuStage::name);
    if (found == GpuStages().end()) return Usage();
    stages.push_back(*found);
  }
  const bool fake = std::getenv("STEPSCOPE_GPU_FAKE") != nullptr;
  try {
    // Threads that wait for each other take minutes on a busy machine.
    if (fake) at::set_num_threads(1);
    if (!fake) {
      if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
        return Say(
            std::string("skipped: LibTorch has no CUDA half: ") + dlerror(),
            kSkipped);
      }
      if (!at::globalContext().hasCUDA()) {
        return Say("skipped: CUDA reports no GPU", kSkipped);
      }
    }
    return RunStages(argv[1], stages, fake);
  } catch (const std::exception& error) {
    return Say(error.what(), kFailed);
  }
}
