#include "workloads.h"

#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include <barrier>
#include <ctime>
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
    if (pass >= 0) ns += CpuNs() - begin;  // the first one warms up
  }
  return ns / (3.0 * kLinks * passes);
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
