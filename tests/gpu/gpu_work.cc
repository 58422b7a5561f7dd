#include "gpu/gpu_work.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <thread>

namespace stepscope {
namespace {

constexpr int kLayers = 24;

c10::Device DeviceOf(bool fake) {
  return fake ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, 0);
}

void LaunchOn(c10::Device device, int launches) {
  at::Tensor sum = at::zeros({256}, at::device(device));
  for (int i = 0; i < launches; ++i) sum.add_(1);
}

}  // namespace

GpuWork::GpuWork(bool fake)
    : fake_(fake),
      device_(DeviceOf(fake)),
      guard_(device_.type()),
      a_(at::rand({512, 512}, at::device(device_))),
      filter_(at::rand({32, 16, 3, 3}, at::device(device_))),
      image_(at::rand({8, 16, 56, 56}, at::device(device_))),
      pageable_(at::rand({256 << 10})) {
  for (int i = 0; i < kLayers; ++i) {
    weights_.push_back(
        at::rand({128, 128}, at::device(device_)).requires_grad_());
  }
  if (fake_) return;
  pinned_ = pageable_.pin_memory();
  side_ = guard_.getStreamFromGlobalPool(device_);
  runtime_ = std::make_unique<CudaRuntime>();
}

void GpuWork::Round() {
  Compute();
  Copy();
  if (!fake_) {
    TwoStreams();
    runtime_->UsePools();
    runtime_->LaunchGraph();
  }
  Synchronize();
}

void GpuWork::Once() {
  if (fake_) return;
  runtime_->UseManagedAndHostMemory();
  if (guard_.deviceCount() > 1) {
    const at::Tensor there = a_.to(c10::Device(c10::kCUDA, 1));
    there.sum().item<float>();
  }
  Synchronize();
}

void GpuWork::Launch(int launches) {
  LaunchOn(device_, launches);
  Synchronize();
}

void GpuWork::OnThreads(int threads, int launches) {
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([this, launches] { LaunchOn(device_, launches); });
  }
  for (std::thread& thread : running) thread.join();
  Synchronize();
}

void GpuWork::TrainingStep() {
  at::Tensor x = a_.slice(/*dim=*/1, 0, 128);
  for (const at::Tensor& weight : weights_) {
    x = at::relu(at::mm(x, weight)) * 0.01;
  }
  x.mean().backward();
  const at::NoGradGuard no_grad;
  for (at::Tensor& weight : weights_) {
    weight.add_(weight.grad(), -0.001);
    weight.mutable_grad().zero_();
  }
  Synchronize();
}

void GpuWork::Synchronize() {
  if (!fake_) guard_.synchronizeDevice(0);
}

void GpuWork::Compute() {
  const at::Tensor half = a_.to(at::kHalf);
  const at::Tensor product = at::mm(half, half).to(at::kFloat);
  const at::Tensor out = at::conv2d(image_, filter_, {}, 1, 1);
  sum_ = at::softmax(at::relu(at::mm(a_, a_) + product), 1).sum() + out.mean();
  at::Tensor zeros = at::empty({1 << 20}, at::device(device_));
  zeros.zero_();
  (void)sum_.item<float>();
}

void GpuWork::Copy() {
  const at::Tensor from_pageable =
      pageable_.to(device_, /*non_blocking=*/false, /*copy=*/true);
  if (fake_) return;
  const at::Tensor from_pinned = pinned_.to(device_, /*non_blocking=*/true);
  const at::Tensor on_device = from_pinned.clone();
  pageable_.copy_(on_device);
  pinned_.copy_(on_device, /*non_blocking=*/true);
}

void GpuWork::TwoStreams() {
  const c10::Stream main = guard_.getStream(device_);
  c10::Event ready(c10::DeviceType::CUDA);
  ready.record(main);
  {
    const c10::StreamGuard on_side(*side_);
    ready.block(*side_);
    sum_ = sum_ + a_.mean();
  }
  c10::Event done(c10::DeviceType::CUDA);
  done.record(*side_);
  done.block(main);
  done.synchronize();
  side_->synchronize();
}

}  // namespace stepscope
