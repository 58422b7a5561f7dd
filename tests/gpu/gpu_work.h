// The work that gpu_program records: every kind for which CUPTI has a record,
// and a small training step.
//
// With a fake CUPTI in place of a GPU (tests/README.md), operators run on the
// CPU. Work that needs a device is left out: streams, pinned memory, CUDA
// graphs. Everything except OnThreads() runs on one thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>
#include <optional>
#include <vector>

#include "gpu/cuda_runtime.h"

namespace stepscope {

class GpuWork {
 public:
  // Uses the first GPU, for which CUDA must be loaded, or the CPU.
  explicit GpuWork(bool fake);

  bool fake() const { return fake_; }

  // Makes the same calls in the same order each time. The device is idle at the
  // end.
  void Round();
  // Does what a program does once and what is too slow for each round.
  void Once();
  // Launches one kernel per launch, one after the other.
  void Launch(int launches);
  // Does the same on several threads at once.
  void OnThreads(int threads, int launches);
  // Runs forward, backward and update of a small network; most of it is
  // launches.
  void TrainingStep();
  // Waits until the device is idle.
  void Synchronize();

 private:
  void Compute();
  void Copy();
  void TwoStreams();

  const bool fake_;
  const c10::Device device_;
  c10::impl::VirtualGuardImpl guard_;
  at::Tensor a_, filter_, image_, pageable_, pinned_, sum_;
  std::vector<at::Tensor> weights_;
  std::optional<c10::Stream> side_;
  std::unique_ptr<CudaRuntime> runtime_;
};

}  // namespace stepscope
