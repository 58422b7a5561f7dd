// Does on a GPU whatever CUPTI has a kind of record for, under one profiler:
//
//   gpu_program stepscope FOLDER    leaves a log directory
//   gpu_program kineto FILE         leaves LibTorch's own trace
//   gpu_program buffers FILE        leaves CUPTI's buffers (recorded_cupti.h)
//
// Linked to LibTorch's CPU half; CUDA is loaded at run time, so it builds
// anywhere. Exit status 77: there is no GPU, and why; 1: something failed.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <stepscope/profile.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gpu/cuda_runtime.h"
#include "gpu/record_buffers.h"

namespace {

constexpr int kSkipped = 77;
// Enough for a median of each kernel.
constexpr int kRounds = 40;

class Work {
 public:
  Work()
      : gpu_(c10::DeviceType::CUDA),
        a_(at::rand({512, 512}, at::device(Cuda()))),
        filter_(at::rand({32, 16, 3, 3}, at::device(Cuda()))),
        image_(at::rand({8, 16, 56, 56}, at::device(Cuda()))),
        pageable_(at::rand({256 << 10})),
        pinned_(pageable_.pin_memory()),
        side_(gpu_.getStreamFromGlobalPool(Cuda())) {}

  // The same calls each time, in one order; the device is idle at its end.
  void Round() {
    Compute();
    Copy();
    TwoStreams();
    runtime_.UsePools();
    runtime_.LaunchGraph();
    gpu_.synchronizeDevice(0);
  }
  // What a program does once, and what would cost each round too much.
  void Once() {
    runtime_.UseManagedAndHostMemory();
    if (gpu_.deviceCount() > 1) {
      const at::Tensor there = a_.to(c10::Device(c10::DeviceType::CUDA, 1));
      there.sum().item<float>();
    }
    gpu_.synchronizeDevice(0);
  }

 private:
  static c10::Device Cuda() { return {c10::DeviceType::CUDA, 0}; }

  void Compute() {
    const at::Tensor half = a_.to(at::kHalf);
    const at::Tensor product = at::mm(half, half).to(at::kFloat);
    const at::Tensor out = at::conv2d(image_, filter_, {}, 1, 1);
    sum_ =
        at::softmax(at::relu(at::mm(a_, a_) + product), 1).sum() + out.mean();
    at::Tensor zeros = at::empty({1 << 20}, at::device(Cuda()));
    zeros.zero_();
    (void)sum_.item<float>();
  }
  void Copy() {
    const at::Tensor from_pageable = pageable_.to(Cuda());
    const at::Tensor from_pinned = pinned_.to(Cuda(), /*non_blocking=*/true);
    const at::Tensor on_device = from_pinned.clone();
    pageable_.copy_(on_device);
    pinned_.copy_(on_device, /*non_blocking=*/true);
  }
  void TwoStreams() {
    const c10::Stream main = gpu_.getStream(Cuda());
    c10::Event ready(c10::DeviceType::CUDA);
    ready.record(main);
    {
      const c10::StreamGuard guard(side_);
      ready.block(side_);
      sum_ = sum_ + a_.mean();
    }
    c10::Event done(c10::DeviceType::CUDA);
    done.record(side_);
    done.block(main);
    done.synchronize();
    side_.synchronize();
  }

  c10::impl::VirtualGuardImpl gpu_;
  at::Tensor a_, filter_, image_, pageable_, pinned_, sum_;
  c10::Stream side_;
  stepscope::CudaRuntime runtime_;
};

// Its warm-up is a round before; so is Kineto's.
void UnderStepscope(Work& work, const std::string& folder) {
  stepscope::Profile profile({.log_dir = folder,
                              .name = "gpu_program",
                              .schedule = {.wait = 1, .warmup = 1, .active = 1},
                              .record_shapes = true,
                              .profile_memory = true,
                              .print_report = false});
  work.Round();
  profile.Step();
  work.Round();
  profile.Step();
  for (int i = 0; i < kRounds; ++i) work.Round();
  work.Once();
  profile.Step();
  const absl::Status status = profile.Finish();
  if (status.ok()) return;
  std::fprintf(stderr, "gpu_program: %s\n",
               std::string(status.message()).c_str());
  std::exit(1);
}

void UnderKineto(Work& work, const std::string& file) {
  using namespace torch::autograd::profiler;
  work.Round();
  const ProfilerConfig config(ProfilerState::KINETO);
  prepareProfiler(config, {ActivityType::CPU, ActivityType::CUDA});
  work.Round();
  enableProfiler(config, {ActivityType::CPU, ActivityType::CUDA});
  for (int i = 0; i < kRounds; ++i) work.Round();
  work.Once();
  disableProfiler()->save(file);
}

void KeepBuffers(Work& work, const std::string& file) {
  work.Round();
  const absl::Status status = stepscope::RecordBuffers(
      [&] {
        work.Round();
        work.Once();
      },
      file);
  if (status.ok()) return;
  std::fprintf(stderr, "gpu_program: %s\n",
               std::string(status.message()).c_str());
  std::exit(1);
}

int Skip(const std::string& why) {
  std::fprintf(stderr, "gpu_program: skipped: %s\n", why.c_str());
  return kSkipped;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: gpu_program stepscope|kineto|buffers OUT\n");
    return 2;
  }
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr)
    return Skip(std::string("LibTorch has no CUDA half: ") + dlerror());
  try {
    if (!at::globalContext().hasCUDA()) return Skip("CUDA reports no GPU");
    at::manual_seed(1);
    Work work;
    if (std::strcmp(argv[1], "kineto") == 0) {
      UnderKineto(work, argv[2]);
    } else if (std::strcmp(argv[1], "buffers") == 0) {
      KeepBuffers(work, argv[2]);
    } else {
      UnderStepscope(work, argv[2]);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_program: %s\n", error.what());
    return 1;
  }
  return 0;
}
