#include "recorders.h"

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <stepscope/collectors.h>
#include <stepscope/export.h>
#include <stepscope/profile.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

namespace stepscope::bench {
namespace {

// Ends the benchmark on an error: without a working recorder there is no
// result.
template <typename Status>
void Need(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

class Nothing : public RecorderScope {
 public:
  void StopAndExport(const std::string&) override {}
  void StopAndKeep() override {}
};

// LibTorch keeps a table of all blocks as soon as a hook wants memory events.
class EmptyMemoryHook : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t, size_t, size_t, c10::Device) override {
  }
  bool memoryProfilingEnabled() const override { return true; }
};

class EmptyCallback : public RecorderScope {
 public:
  explicit EmptyCallback(const RecordOptions& options) {
    if (options.memory)
      memory_.emplace(kSlot, std::make_shared<EmptyMemoryHook>());
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(
        [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
          return nullptr;
        },
        [](const at::RecordFunction&, at::ObserverContext*) {}));
  }
  ~EmptyCallback() override { at::removeCallback(handle_); }
  void StopAndExport(const std::string&) override {}
  void StopAndKeep() override {}

 private:
  static constexpr auto kSlot = c10::DebugInfoKind::PROFILER_STATE;
  std::optional<c10::DebugInfoGuard> memory_;
  at::CallbackHandle handle_;
};

class Ours : public RecorderScope {
 public:
  explicit Ours(const RecordOptions& options)
      : collector_(MakeTorchCollector({.record_shapes = options.shapes,
                                       .record_memory = options.memory})),
        begin_(ReadClock()) {
    auto opened = EventBuffers::Open({.max_buffer_bytes = int64_t{1} << 30});
    Need(opened.status());
    buffers_ = *std::move(opened);
    Need(collector_->Start());
  }
  ~Ours() override {
    if (torch_ == nullptr) StopAndKeep();
  }

  void StopAndKeep() override {
    auto stopped = collector_->Stop();
    Need(stopped.status());
    torch_ = *std::move(stopped);
    events_ = buffers_->Close();
  }

  void StopAndExport(const std::string& path) override {
    StopAndKeep();
    TraceBuilder builder;
    const ClockMap clock(begin_, ReadClock());
    torch_->AddTo(builder, clock, events_->slots());
    events_->AddTo(builder, clock);
    Need(WriteTrace(builder.Build(), {}, Format::kChromeKineto, path));
  }

 private:
  std::unique_ptr<Collector> collector_;
  ClockReading begin_;
  std::unique_ptr<EventBuffers> buffers_;
  std::unique_ptr<Recording> torch_;
  std::unique_ptr<EventRecording> events_;
};

class OursWaiting : public RecorderScope {
 public:
  OursWaiting()
      : profile_({.name = "bench",
                  .schedule = {.wait = 1000000},
                  .print_report = false}) {
    profile_.Step();
    Need(profile_.status());
  }
  void StopAndExport(const std::string&) override {}
  void StopAndKeep() override {}

 private:
  Profile profile_;
};

class Kineto : public RecorderScope {
 public:
  explicit Kineto(const RecordOptions& options) {
    using namespace torch::autograd::profiler;
    torch::profiler::impl::ExperimentalConfig extra;
    extra.profile_all_threads = options.all_threads;
    const ProfilerConfig config(ProfilerState::KINETO, options.shapes,
                                options.memory, /*with_stack=*/false,
                                /*with_flops=*/false, /*with_modules=*/false,
                                extra);
    prepareProfiler(config, {ActivityType::CPU});
    enableProfiler(config, {ActivityType::CPU});
  }
  ~Kineto() override {
    if (result_ == nullptr) StopAndKeep();
  }

  void StopAndKeep() override {
    result_ = torch::autograd::profiler::disableProfiler();
  }
  void StopAndExport(const std::string& path) override {
    StopAndKeep();
    result_->save(path);
  }

 private:
  std::unique_ptr<torch::autograd::profiler::ProfilerResult> result_;
};

class KinetoPrepared : public RecorderScope {
 public:
  KinetoPrepared() {
    torch::autograd::profiler::prepareProfiler(
        config_, {torch::autograd::profiler::ActivityType::CPU});
  }
  ~KinetoPrepared() override {
    // A prepared profiler must be used before it can be prepared again.
    torch::autograd::profiler::enableProfiler(
        config_, {torch::autograd::profiler::ActivityType::CPU});
    torch::autograd::profiler::disableProfiler();
  }
  void StopAndExport(const std::string&) override {}
  void StopAndKeep() override {}

 private:
  const torch::autograd::profiler::ProfilerConfig config_{
      torch::autograd::profiler::ProfilerState::KINETO};
};

}  // namespace

std::unique_ptr<RecorderScope> Start(Recorder recorder,
                                     const RecordOptions& options) {
  switch (recorder) {
    case Recorder::kEmpty:
      return std::make_unique<EmptyCallback>(options);
    case Recorder::kOurs:
      return std::make_unique<Ours>(options);
    case Recorder::kKineto:
      return std::make_unique<Kineto>(options);
    case Recorder::kOursWaiting:
      return std::make_unique<OursWaiting>();
    case Recorder::kKinetoPrepared:
      return std::make_unique<KinetoPrepared>();
    case Recorder::kNothing:
      break;
  }
  return std::make_unique<Nothing>();
}

}  // namespace stepscope::bench
