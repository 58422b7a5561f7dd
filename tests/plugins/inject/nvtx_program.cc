// A program that marks its steps with NVTX and ends as its arguments say. It
// represents any program and contains nothing of stepscope.
//
//   nvtx_program STEPS [STEP_MS] [WORD...]
//     thread   the steps run on a thread that is not the main one
//     fork     each step forks a child, which pushes ranges and exits
//     exit     exits with code 7 inside a step
//     throw    ends with an uncaught exception
//     _exit    ends without any clean-up
//     running  ends while another thread continues to step
//     cuda     loads the library in CUDA_INJECTION64_PATH, as the driver does
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

void Sleep(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

void ForkChild() {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    nvtxRangePushA("step");
    nvtxRangePushA("of a child");
    nvtxRangePop();
    nvtxRangePop();
    std::exit(0);  // with all clean-up
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) std::printf("a child failed with status %d\n", status);
}

void Steps(int steps, int ms, const std::set<std::string>& words) {
  for (int i = 0; i < steps; ++i) {
    nvtxRangePushA("step");
    nvtxRangePushA("forward");
    Sleep(ms);
    nvtxRangePop();
    if (words.contains("fork")) ForkChild();
    if (words.contains("exit") && i == steps - 1) std::exit(7);
    if (words.contains("throw") && i == steps - 1) {
      throw std::runtime_error("the program's own");
    }
    nvtxRangePop();
    Sleep(ms / 4);
  }
}

void InitializeCuda() {
  const char* const path = std::getenv("CUDA_INJECTION64_PATH");
  void* const library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW);
  if (library == nullptr) return;
  const auto initialize =
      reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  std::printf("InitializeInjection gives %d\n", initialize());
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 0;
  const int ms = argc > 2 ? std::atoi(argv[2]) : 0;
  std::set<std::string> words;
  for (int i = 3; i < argc; ++i) words.insert(argv[i]);
  std::puts("the program's own output");
  if (words.contains("cuda")) InitializeCuda();
  if (words.contains("thread")) {
    std::thread([&] { Steps(steps, ms, words); }).join();
  } else if (words.contains("running")) {
    std::thread([=] {
      for (;;) Steps(1, 1, words);
    }).detach();
    Sleep(steps * ms);
  } else {
    Steps(steps, ms, words);
  }
  if (words.contains("_exit")) _exit(3);
  return 0;
}
