#include <stepscope/clock.h>
#include <stepscope/collectors.h>
#include <stepscope/trace_builder.h>
#include <sys/resource.h>

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cores.h"
#include "host_decode.h"
#include "host_samples.h"
#include "loader_workers.h"
#include "proc_file.h"

namespace stepscope {
namespace {

// Enough for about 30,000 steps without workers; a window has only a few.
constexpr size_t kMaxTextBytes = size_t{16} << 20;

int64_t CpuNs(clockid_t clock) {
  timespec time;
  if (clock_gettime(clock, &time) != 0) return -1;
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Each of these files is shorter than 512 bytes.
TextSpan Copy(const ProcFile& file, std::string& text) {
  TextSpan span;
  span.begin = static_cast<uint32_t>(text.size());
  file.AppendRecord(text, 512);
  span.end = static_cast<uint32_t>(text.size());
  return span;
}

class HostRecording : public Recording {
 public:
  HostRecording(HostSamples samples, std::string root)
      : samples_(std::move(samples)), root_(std::move(root)) {}

  void AddTo(TraceBuilder& builder, const ClockMap&, const SlotLog&) override {
    builder.Watch(Kind::kHostUsage);
    builder.run().usable_cores = UsableCores(root_);
    builder.run().cpu_model = CpuModel(root_);
    for (const HostUsage& row : DecodeHostUsage(samples_)) builder.Add(row);
    if (samples_.dropped > 0) {
      builder.Add(
          Loss{.name = "host-samples-full",
               .detail =
                   "the host's counters of the last steps are missing, because "
                   "the window has too many; use fewer active steps",
               .count = samples_.dropped,
               .severity = Severity::kNote});
    }
  }

 private:
  HostSamples samples_;
  std::string root_;
};

// Its only hook is OnStep(), which reads a few files that stay open.
class HostCollector : public Collector {
 public:
  explicit HostCollector(HostOptions options)
      : root_(std::move(options.root)), tid_(options.training_tid) {}

  std::string_view name() const override { return "host"; }

  absl::Status Start() override {
    schedstat_ = ProcFile(root_ + ThreadFolder() + "/schedstat");
    io_ = ProcFile(root_ + "/proc/self/io");
    workers_.emplace(root_);
    samples_ = HostSamples();
    samples_.text.reserve(size_t{1} << 14);
    if (!schedstat_.is_open() && !io_.is_open()) {
      return absl::UnavailableError(
          "host: cannot read " + root_ +
          "/proc; CPU time, run delay and I/O per step are not recorded");
    }
    // The state before the first step, which the first difference starts from.
    Sample(-1, NowNs());
    return absl::OkStatus();
  }

  void OnStep(int64_t step, int64_t now_ns) override { Sample(step, now_ns); }

  // A new starting point: usage during the pause belongs to no step.
  void Resume() override { Sample(-1, NowNs()); }

  absl::StatusOr<std::unique_ptr<Recording>> Stop() override {
    workers_.reset();
    schedstat_ = ProcFile();
    io_ = ProcFile();
    return std::make_unique<HostRecording>(std::move(samples_), root_);
  }

 private:
  void Sample(int64_t step, int64_t now_ns) {
    if (samples_.text.size() > kMaxTextBytes) {
      ++samples_.dropped;
      return;
    }
    HostSample sample;
    sample.step = step;
    sample.time_ns = now_ns;
    sample.process_cpu_ns = CpuNs(CLOCK_PROCESS_CPUTIME_ID);
    sample.thread_cpu_ns = CpuNs(ThreadClock());
    rusage usage;
    // Only for the calling thread: getrusage() has no other threads.
    if (tid_ == 0 && getrusage(RUSAGE_THREAD, &usage) == 0) {
      sample.involuntary_switches = usage.ru_nivcsw;
    }
    sample.schedstat = Copy(schedstat_, samples_.text);
    sample.io = Copy(io_, samples_.text);
    workers_->Sample(samples_, sample);
    samples_.samples.push_back(sample);
  }

  std::string ThreadFolder() const {
    return tid_ == 0 ? "/proc/thread-self"
                     : "/proc/self/task/" + std::to_string(tid_);
  }
  // Linux's number of a thread's CPU clock (clock_getres(2), "Dynamic clocks";
  // include/linux/posix-timers.h: per thread, time that it was scheduled).
  clockid_t ThreadClock() const {
    if (tid_ == 0) return CLOCK_THREAD_CPUTIME_ID;
    return static_cast<clockid_t>(~static_cast<unsigned>(tid_) << 3 | 6);
  }

  std::string root_;
  int64_t tid_;
  ProcFile schedstat_;
  ProcFile io_;
  std::optional<LoaderWorkers> workers_;
  HostSamples samples_;
};

}  // namespace

std::unique_ptr<Collector> MakeHostCollector(const HostOptions& options) {
  return std::make_unique<HostCollector>(options);
}

}  // namespace stepscope
