#include "gpu/gpu_stages.h"

#include <stepscope/clock.h>
#include <stepscope/collectors.h>
#include <stepscope/export.h>
#include <stepscope/profile.h>
#include <stepscope/trace.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdio>
#include <functional>
#include <set>
#include <utility>

#include "gpu/gpu_work.h"
#include "gpu/record_buffers.h"
#include "gpu/under_cupti.h"

namespace stepscope {
namespace {

// Enough rounds for a median of each kernel. With a fake, operators run on the
// CPU, so only as many as show all kinds of work.
int Rounds(const GpuWork& work) { return work.fake() ? 3 : 40; }
// Number of steps in a window whose mean step is compared with other steps.
constexpr int kCostSteps = 80;

// Runs a Profile with one window for each path, and writes each window's trace
// to its path.
absl::Status UnderProfile(ProfileOptions options,
                          const std::vector<std::string>& paths,
                          const std::function<void(bool recorded)>& step) {
  absl::Status written;
  size_t windows = 0;
  options.name = "gpu_program";
  options.print_report = false;
  options.time_all_steps = false;
  options.schedule.repeat = static_cast<int64_t>(paths.size());
  options.on_report = [&](const Trace& trace, const Report&) {
    written.Update(
        WriteTrace(trace, {}, Format::kChromeKineto, paths[windows++]));
  };
  const Schedule schedule = options.schedule;
  Profile profile(std::move(options));
  for (size_t window = 0; window < paths.size(); ++window) {
    for (int64_t i = 0; i < schedule.wait + schedule.warmup + schedule.active;
         ++i) {
      step(i >= schedule.wait + schedule.warmup);
      profile.Step();
    }
  }
  absl::Status status = profile.Finish();
  status.Update(written);
  if (status.ok() && windows < paths.size()) {
    return absl::InternalError("only " + std::to_string(windows) +
                               " windows were recorded");
  }
  return status;
}

// The warm-up is one round before the window, as for Kineto.
absl::Status RecordWindows(GpuWork& work,
                           const std::vector<std::string>& paths) {
  ProfileOptions options;
  options.schedule = {.wait = 1, .warmup = 1, .active = 1};
  options.record_shapes = true;
  options.profile_memory = true;
  return UnderProfile(std::move(options), paths, [&](bool recorded) {
    for (int i = 0; i < (recorded ? Rounds(work) : 1); ++i) work.Round();
    if (recorded) work.Once();
  });
}

absl::Status Ours(GpuWork& work, const std::string& prefix) {
  return RecordWindows(work, {prefix + ".json.gz"});
}

absl::Status TwoWindows(GpuWork& work, const std::string& prefix) {
  return RecordWindows(work, {prefix + "_c0.json.gz", prefix + "_c1.json.gz"});
}

// Runs `steps` under Kineto. If `file` is "", keeps nothing.
void UnderKineto(const GpuWork& work, const std::string& file,
                 const std::function<void()>& warmup,
                 const std::function<void()>& steps) {
  using namespace torch::autograd::profiler;
  const ProfilerConfig config(ProfilerState::KINETO);
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (!work.fake()) activities.insert(ActivityType::CUDA);
  prepareProfiler(config, activities);
  warmup();
  enableProfiler(config, activities);
  steps();
  const auto result = disableProfiler();
  if (!file.empty()) result->save(file);
}

absl::Status Kineto(GpuWork& work, const std::string& prefix) {
  work.Round();
  UnderKineto(
      work, prefix + ".json", [&] { work.Round(); },
      [&] {
        for (int i = 0; i < Rounds(work); ++i) work.Round();
        work.Once();
      });
  return absl::OkStatus();
}

absl::Status Buffers(GpuWork& work, const std::string& prefix) {
  work.Round();
  return RecordBuffers(
      [&] {
        work.Round();
        work.Once();
      },
      prefix + ".cupti");
}

absl::Status Threads(GpuWork& work, const std::string& prefix) {
  ProfileOptions options;
  options.schedule = {.wait = 0, .warmup = 1, .active = 1};
  return UnderProfile(
      std::move(options), {prefix + ".json.gz"}, [&](bool recorded) {
        work.OnThreads(kLaunchingThreads, recorded ? kLaunchesPerThread : 1);
      });
}

absl::Status Overflow(GpuWork& work, const std::string& prefix) {
  ProfileOptions options;
  options.schedule = {.wait = 0, .warmup = 1, .active = 1};
  options.collectors.emplace();
  options.collectors->push_back(MakeCuptiCollector(
      {.max_buffer_bytes = 1 << 20, .buffer_bytes = 256 << 10}));
  return UnderProfile(
      std::move(options), {prefix + ".json.gz"},
      [&](bool recorded) { work.Launch(recorded ? kOverflowLaunches : 1); });
}

// Runs `steps` steps and appends the length of each to `us`.
void Time(std::vector<double>* us, int steps,
          const std::function<void()>& step) {
  for (int i = 0; i < steps; ++i) {
    const int64_t begin = NowNs();
    step();
    us->push_back(static_cast<double>(NowNs() - begin) / 1000);
  }
}

absl::Status WriteCost(const std::string& path, const std::vector<double>& off,
                       const std::vector<double>& on) {
  const auto list = [](const std::vector<double>& numbers) {
    std::string text;
    for (const double number : numbers) {
      text += (text.empty() ? "" : ", ") + std::to_string(number);
    }
    return "[" + text + "]";
  };
  return WriteText(
      "{\"off_us\": " + list(off) + ", \"on_us\": " + list(on) + "}\n", path);
}

// Runs steps without a recorder before and after those with one, so that a
// drift of the machine affects both alike. `record` appends the times of the
// recorded steps, without opening and closing the recorder.
absl::Status CostOf(
    GpuWork& work, const std::string& prefix,
    const std::function<absl::Status(const std::function<void()>& step,
                                     std::vector<double>* on)>& record) {
  std::vector<double> off, on;
  const auto step = [&] { work.TrainingStep(); };
  for (int i = 0; i < kCostSteps; ++i) step();
  Time(&off, kCostSteps, step);
  if (absl::Status s = record(step, &on); !s.ok()) return s;
  Time(&off, kCostSteps, step);
  return WriteCost(prefix + ".json", off, on);
}

absl::Status CostOfOurs(GpuWork& work, const std::string& prefix) {
  return CostOf(work, prefix, [](const auto& step, std::vector<double>* on) {
    ProfileOptions options;
    options.name = "gpu_program";
    options.print_report = false;
    options.time_all_steps = false;
    options.schedule = {.wait = 0, .warmup = 5, .active = kCostSteps + 2};
    Profile profile(std::move(options));
    const auto profiled = [&] {
      step();
      profile.Step();
    };
    for (int i = 0; i < 6; ++i) profiled();
    Time(on, kCostSteps, profiled);
    profiled();
    return profile.Finish();
  });
}

absl::Status CostOfKineto(GpuWork& work, const std::string& prefix) {
  return CostOf(work, prefix, [&](const auto& step, std::vector<double>* on) {
    UnderKineto(
        work, "",
        [&] {
          for (int i = 0; i < 5; ++i) step();
        },
        [&] {
          step();
          Time(on, kCostSteps, step);
        });
    return absl::OkStatus();
  });
}

template <CuptiPart kPart>
absl::Status CostOfCupti(GpuWork& work, const std::string& prefix) {
  return CostOf(work, prefix, [](const auto& step, std::vector<double>* on) {
    absl::Status status = UnderCupti(kPart, [&] {
      for (int i = 0; i < 5; ++i) step();
      Time(on, kCostSteps, step);
    });
    step();
    return status;
  });
}

}  // namespace

const std::vector<GpuStage>& GpuStages() {
  static const std::vector<GpuStage> stages = {
      {"ours", "{}.json.gz: our trace of 40 rounds of work", &Ours},
      {"windows", "{}_c0.json.gz, {}_c1.json.gz: two windows of one Profile",
       &TwoWindows},
      {"kineto", "{}.json: LibTorch's own trace of the same rounds", &Kineto},
      {"buffers", "{}.cupti: CUPTI's buffers (recorded_cupti.h)", &Buffers},
      {"threads", "{}.json.gz: several threads launch at once", &Threads},
      {"overflow", "{}.json.gz: more launches than the buffers hold",
       &Overflow},
      {"cost-ours", "{}.json: step times without and with our recorder",
       &CostOfOurs},
      {"cost-kineto", "{}.json: the same with Kineto", &CostOfKineto},
      {"cost-subscribed", "{}.json: with CUPTI subscribed to, no more",
       &CostOfCupti<CuptiPart::kSubscribed>},
      {"cost-kernels", "{}.json: with its records of kernels and copies",
       &CostOfCupti<CuptiPart::kKernels>},
      {"cost-launches", "{}.json: with those of calls, without queries",
       &CostOfCupti<CuptiPart::kLaunchCalls>},
      {"cost-calls", "{}.json: with those of all calls",
       &CostOfCupti<CuptiPart::kAllCalls>}};
  return stages;
}

}  // namespace stepscope
