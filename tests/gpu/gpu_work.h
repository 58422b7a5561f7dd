// What gpu_program has recorded: work of every kind that CUPTI has a record
// for, and a small training step.
//
// With a fake CUPTI in place of a GPU (tests/README.md) the operators run on
// the CPU, and what only a device has is left out: streams, pinned memory, CUDA
// graphs. Of one thread, except OnThreads().
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
  // On the first GPU, whose CUDA must be loaded, or on the CPU.
  explicit GpuWork(bool fake);

  bool fake() const { return fake_; }

  // The same calls each time, in one order; the device is idle at its end.
  void Round();
  // What a program does once, and what would cost each round too much.
  void Once();
  // One kernel per launch, one after the other.
  void Launch(int launches);
  // The same on several threads at once.
  void OnThreads(int threads, int launches);
  // Forward, backward and update of a small network; mostly launches.
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
