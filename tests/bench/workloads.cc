#include "workloads.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace stepscope::bench {
namespace {

double CpuNs() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

double AddsOnThisThread(int ops) {
  const at::Tensor a = at::ones({4, 8});
  const at::Tensor b = at::ones({4, 8});
  for (int i = 0; i < 500; ++i) at::add(a, b);
  const double begin = CpuNs();
  for (int i = 0; i < ops; ++i) at::add(a, b);
  return (CpuNs() - begin) / ops;
}

// Half a residual block.
struct Half {
  at::Tensor weight = at::ones({8, 8, 3, 3}).mul_(0.01).requires_grad_(true);
  at::Tensor scale = at::ones({8}).requires_grad_(true);
  at::Tensor shift = at::ones({8}).requires_grad_(true);
  at::Tensor mean = at::ones({8});
  at::Tensor variance = at::ones({8});

  at::Tensor Run(const at::Tensor& x) {
    const at::Tensor y = at::conv2d(x, weight, {}, 1, 1);
    return at::batch_norm(y, scale, shift, mean, variance, true, 0.1, 1e-5,
                          true)
        .relu();
  }
};

// Returns the number of events on all threads that a recorder sees during
// `run`.
int64_t EventsOf(const std::function<void()>& run) {
  static std::atomic<int64_t> events;
  events = 0;
  const at::CallbackHandle handle = at::addGlobalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction&)
                                     -> std::unique_ptr<at::ObserverContext> {
        ++events;
        return nullptr;
      }));
  run();  // warms up
  events = 0;
  run();
  at::removeCallback(handle);
  return events;
}

}  // namespace

double AddOps(int threads, int ops) {
  if (threads == 1) return AddsOnThisThread(ops);
  std::vector<double> ns(threads);
  std::barrier start(threads);
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      start.arrive_and_wait();
      ns[t] = AddsOnThisThread(ops);
    });
  }
  double sum = 0;
  for (int t = 0; t < threads; ++t) {
    running[t].join();
    sum += ns[t];
  }
  return sum / threads;
}

double BackwardPasses(int passes) {
  constexpr int kLinks = 200;
  const at::Tensor x = at::ones({4, 8}).requires_grad_(true);
  double ns = 0;
  for (int pass = -1; pass < passes; ++pass) {
    at::Tensor y = x;
    for (int i = 0; i < kLinks; ++i) y = y.neg();
    const at::Tensor gradient = at::ones({4, 8});
    const double begin = CpuNs();
    torch::autograd::backward({y}, {gradient});
    if (pass >= 0) ns += CpuNs() - begin;  // pass -1 warms up
  }
  return ns / (3.0 * kLinks * passes);
}

double ResidualBlocks(int passes) {
  const at::Tensor x = at::ones({1, 8, 4, 4});
  std::array<Half, 2> halves;
  const auto pass = [&] {
    at::Tensor y = x;
    for (Half& half : halves) y = half.Run(y);
    at::Tensor loss = (y + x).relu().sum();
    torch::autograd::backward({loss}, {});
  };
  static const int64_t events = EventsOf(pass);
  pass();  // gradients exist from now on
  const double begin = CpuNs();
  for (int i = 0; i < passes; ++i) pass();
  return (CpuNs() - begin) / static_cast<double>(events * passes);
}

double UserScopes(int scopes) {
  static int number = 0;
  std::vector<std::string> names(scopes);
  for (std::string& name : names) {
    name = "a scope of the user's own " + std::to_string(number++);
  }
  const double begin = CpuNs();
  for (const std::string& name : names) {
    RECORD_USER_SCOPE(name);
  }
  return (CpuNs() - begin) / scopes;
}

}  // namespace stepscope::bench
