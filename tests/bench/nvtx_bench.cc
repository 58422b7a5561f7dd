// nvtx_bench: measures what a pair of NVTX calls costs compared with an empty
// injection, alternately in one process, and how fast recorded pairs become
// rows. Exits with 0 if every bound is met, and with 3 if one is missed.
//
//   nvtx_bench [FILE of JSON lines]
#include <dlfcn.h>
#include <stepscope/collectors.h>
#include <stepscope/event_buffer.h>
#include <stepscope/trace.h>
#include <stepscope/trace_builder.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "results.h"

namespace stepscope::bench {
namespace {

constexpr int kRounds = 41;
constexpr int kPairs = 20000;

using Loop = void (*)(int pairs);

double NsPerPair(Loop loop) {
  const auto begin = std::chrono::steady_clock::now();
  loop(kPairs);
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - begin).count() / kPairs;
}

// The loop of a library that makes its first NVTX call now, under `injection`.
class Calls {
 public:
  Calls(const char* library, const char* injection)
      : library_(dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(1);
    }
    setenv("NVTX_INJECTION64_PATH", injection, 1);
    Get("PushPop")(1);
  }
  Loop Get(const char* name) const {
    return reinterpret_cast<Loop>(dlsym(library_, name));
  }

 private:
  void* library_;
};

// A window that records only NVTX.
class Window {
 public:
  explicit Window(Collector& collector)
      : collector_(collector), begin_(ReadClock()) {
    auto buffers = EventBuffers::Open({});
    if (!buffers.ok() || !collector_.Start().ok()) std::abort();
    buffers_ = *std::move(buffers);
  }
  Trace Take(double* decode_ns = nullptr) {
    const auto recording = collector_.Stop();
    if (!recording.ok()) std::abort();
    const auto events = buffers_->Close();
    const ClockMap clock(begin_, ReadClock());
    const auto begin = std::chrono::steady_clock::now();
    TraceBuilder builder;
    (*recording)->AddTo(builder, clock, events->slots());
    events->AddTo(builder, clock);
    const auto end = std::chrono::steady_clock::now();
    if (decode_ns != nullptr) {
      *decode_ns =
          std::chrono::duration<double, std::nano>(end - begin).count();
    }
    return builder.Build();
  }

 private:
  Collector& collector_;
  ClockReading begin_;
  std::unique_ptr<EventBuffers> buffers_;
};

void AddRow(Results& results, const std::string& name, Loop ours, Loop empty,
            Collector* collector, double bound) {
  std::vector<double> added;
  std::vector<double> empties;
  for (int i = 0; i < kRounds; ++i) {
    std::unique_ptr<Window> window;
    if (collector != nullptr) window = std::make_unique<Window>(*collector);
    const double empty_ns = NsPerPair(empty);
    const double ours_ns = NsPerPair(ours);
    if (window != nullptr &&
        window->Take().ranges().size() != static_cast<size_t>(kPairs)) {
      std::fputs("pairs were not recorded: the row would mean nothing\n",
                 stderr);
      std::exit(1);
    }
    empties.push_back(empty_ns);
    added.push_back(ours_ns - empty_ns);
  }
  results.Add({.name = name,
               .unit = "ns per pair",
               .ours = Median(added),
               .limit = Median(empties),
               .repetitions = kRounds,
               .spread = Spread(added),
               .bound = bound,
               .bound_is_absolute = true});
}

int Main(const std::string& out) {
  const Calls empty(CALLS_EMPTY, EMPTY_INJECTION);
  unsetenv("NVTX_INJECTION64_PATH");
  const std::unique_ptr<Collector> collector = MakeNvtxCollector();
  const Calls ours(CALLS_OURS, std::getenv("NVTX_INJECTION64_PATH"));
  Results results(out);
  for (const char* loop : {"PushPop", "PushPopRegistered", "StartEnd"}) {
    AddRow(results, std::string("nvtx/") + loop, ours.Get(loop),
           empty.Get(loop), collector.get(), 60);
    // Without a window, our hook only loads a value; an empty injection costs
    // the same call.
    AddRow(results, std::string("nvtx/") + loop + "/no-window", ours.Get(loop),
           empty.Get(loop), nullptr, 5);
  }
  std::vector<double> decode;
  for (int i = 0; i < 11; ++i) {
    Window window(*collector);
    for (int k = 0; k < 10; ++k) ours.Get("PushPopRegistered")(kPairs);
    double ns = 0;
    (void)window.Take(&ns);
    decode.push_back(ns / (10.0 * kPairs));
  }
  results.Add({.name = "nvtx/decode",
               .unit = "ns per range",
               .ours = Median(decode),
               .repetitions = 11,
               .spread = Spread(decode)});
  return results.missed() == 0 ? 0 : 3;
}

}  // namespace
}  // namespace stepscope::bench

int main(int argc, char** argv) {
  return stepscope::bench::Main(argc > 1 ? argv[1] : "nvtx_results.jsonl");
}
