#include "step_graph.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "cuda_graph.h"

namespace resnet {

// Loaded by name at run time, so that this program links no CUDA library.
absl::StatusOr<std::unique_ptr<CapturedWork>> MakeCudaGraph() {
  std::error_code code;
  std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", code);
  std::string path = (self.parent_path() / kCudaGraphLibrary).string();
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* make =
      library == nullptr ? nullptr : ::dlsym(library, kMakeCudaGraphName);
  if (make == nullptr) {
    const char* why = ::dlerror();
    return absl::UnavailableError(
        "cannot capture a CUDA graph: " + path + " does not load (" +
        (why == nullptr ? "no reason given" : why) +
        "); it is built where a torch wheel with CUDA and CUDA's headers are "
        "found; do without --cuda-graph");
  }
  try {
    return std::unique_ptr<CapturedWork>(
        reinterpret_cast<MakeCudaGraphFunction*>(make)());
  } catch (const c10::Error& error) {
    return absl::UnavailableError(std::string("cannot capture a CUDA graph: ") +
                                  error.what_without_backtrace() +
                                  "; do without --cuda-graph");
  }
}

// Needed because CUDA cannot capture work of the default stream.
void StepGraph::UseSideStream(torch::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl guard(device.type());
  guard.exchangeStream(guard.getStreamFromGlobalPool(device));
}

torch::Tensor StepGraph::Run(const Batch& batch, const Step& step) {
  if (done_ < kEagerSteps) {
    ++done_;
    return step(batch);
  }
  // A graph reads its inputs at the addresses of its capture, so every batch is
  // copied there.
  if (!loss_.defined()) {
    batch_ = {batch.images.clone(), batch.labels.clone()};
    // Capturing does not execute the work. Replay() below does it, for this
    // batch, too.
    work_->Begin();
    loss_ = step(batch_);
    work_->End();
  } else {
    TORCH_CHECK(batch.images.sizes() == batch_.images.sizes(),
                "a captured step takes batches of one size only");
    batch_.images.copy_(batch.images);
    batch_.labels.copy_(batch.labels);
  }
  work_->Replay();
  return loss_;
}

}  // namespace resnet
