// A LibTorch program that does not use stepscope. `libtorch_train MS STATUS`
// computes for MS milliseconds and exits with STATUS.
#include <ATen/ATen.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::milliseconds(std::atoi(argv[1]));
  const at::Tensor weight = at::ones({512, 512});
  at::Tensor x = at::ones({256, 512});
  while (std::chrono::steady_clock::now() < end) {
    x = at::tanh(at::mm(x, weight));
  }
  std::puts("done");
  return std::atoi(argv[2]);
}
