// Profile: the scope that a user puts around a training loop.
//
//   stepscope::Profile profile({.log_dir = "runs/resnet", .name = "resnet18"});
//   for (auto& batch : stepscope::Batches(*loader, "train")) {
//     Train(batch);
//     profile.Step();
//   }
//
// By default three steps are only timed, three warm up the profiler, three are
// recorded, and all others are timed. After the last recorded step a background
// thread builds the Trace, analyses it, prints the report and writes the files
// of the log directory while training goes on. An error never stops the
// training: it is printed as one line on stderr, and status() returns it. No
// call throws, aborts or blocks, except that the end of the scope waits for the
// files, at most stop_timeout.
//
// With profile_memory LibTorch may print "Memory block of unknown size was
// allocated before the profiling started" on stderr, as it does with
// torch.profiler. The message is harmless. LibTorch reports the release of a
// block only if it also saw the allocation, and it did not see the allocation
// of older blocks, such as the parameters (docs/install.md).
#pragma once

#include <absl/status/status.h>
#include <stepscope/collector.h>
#include <stepscope/module_hook.h>
#include <stepscope/schedule.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace stepscope {

class RankExchange;
class Trace;
struct ProfileParts;
struct Report;
struct WholeRun;

struct ProfileOptions {
  // The folder for the files of all runs of an experiment. It is created if it
  // is missing, and files of earlier runs are kept. "": no files; the report is
  // only printed.
  std::string log_dir = "";
  std::string name = "train";
  Schedule schedule = {};
  // The number of the first step, if the loop does not start at 0 because it
  // was resumed or is profiled from its middle on. The schedule starts at this
  // step.
  int64_t first_step = 0;
  // A step lasts from BeginStep() to Step(), instead of from one Step() to the
  // next. Use it to record only a part of the program: between the steps no
  // operators are recorded.
  bool marked_steps = false;
  // The id (gettid) of the training thread; 0: the thread that creates the
  // Profile and calls Step().
  int64_t training_tid = 0;

  // What is recorded besides operators. Each option costs time only if it is
  // on. Without shapes there are no FLOPs and no findings about sizes and
  // types.
  bool record_shapes = false;  // shapes, strides and types of op arguments
  // Every allocation and release. While a window records them, torch.profiler
  // cannot be started on the same thread (it raises "already enabled").
  bool profile_memory = false;
  // Source lines: records the stack of every top-level operator. Stacks are
  // taken in the last warm-up step, which makes that step slower, and assigned
  // to the same operators of the recorded steps. Without warm-up steps they are
  // taken in the first recorded step. The stack of an operator that waits for a
  // device is always taken. Frames are Python frames in a Python program, and
  // otherwise C++ frames, which need a program compiled with -g. The trace says
  // how many operators have no stack because the steps differ.
  bool with_stack = false;
  // Records modules as ranges, in Python programs, in the same step as stacks.
  // Needs `module_hook` (stepscope/module_hook.h), which the Python package
  // sets. C++ programs mark their modules with ModuleRange.
  bool with_modules = false;
  ModuleHook module_hook = {};
  // The memory limit for the events of one window. When it is reached, new
  // events are dropped, and the report says how many.
  int64_t max_buffer_bytes = int64_t{256} << 20;

  bool print_report = true;         // on stdout, by rank 0
  bool write_page = true;           // the report as one HTML file
  bool write_chrome_tb = true;      // for TensorBoard's PyTorch plugin
  bool write_xspace = true;         // for TensorBoard's XProf plugin
  bool write_chrome_kineto = true;  // for Perfetto, HTA and `stepscope analyze`
  // In the XSpace file, draws the waits for batches as a row of the GPU,
  // because XProf counts them as input only there.
  bool xspace_input_wait = true;

  // Times every step of the run, also after the last window. Costs one read of
  // the clock per step and at most 2 MB. The end of the scope prints what a
  // window of a few steps cannot show, and adds it to the files: stalls that
  // recur, their period and their share of the run.
  bool time_all_steps = true;
  // With time_all_steps: a stall that recurs every n-th step is recorded once,
  // in a window of six steps, to find its cause. Nothing else about that window
  // is printed or written. Has no effect if `collectors` is set, because those
  // are destroyed after the last window.
  bool record_stalls = true;
  // With time_all_steps and a log_dir: one line of JSON per step, for scripts,
  // in LOGDIR/stepscope/RUN/steps_rank<r>.jsonl (docs/json.md, "Step times").
  bool write_step_times = false;
  // With time_all_steps: how often a status line on stderr reports the progress
  // of the run, at most once a second. 0: never.
  std::chrono::milliseconds status_every{0};

  // How long the end of the scope waits for the analysis and the files.
  std::chrono::milliseconds stop_timeout = std::chrono::minutes(2);

  // In a job of several ranks (RANK and WORLD_SIZE, as torchrun sets them) rank
  // 0 prints one report of all ranks. The other ranks send their windows to
  // rank 0 through `exchange` (stepscope/rank_exchange.h). If `exchange` is
  // null or fails, they use the files of a shared log_dir. The report names the
  // ranks that send nothing within `rank_timeout` after rank 0's own window was
  // analysed. 0: each rank reports alone.
  std::shared_ptr<RankExchange> exchange = nullptr;
  std::chrono::milliseconds rank_timeout = std::chrono::seconds(10);

  // If not 0, SIGINT and SIGTERM first end the profile, at the end of the
  // current step, and keep the complete steps of an open window. Then the same
  // signal ends the program. The program ends at the latest this long after the
  // signal, even if no step ends, and at once on a second signal. A handler
  // that the program sets, before or later, is never replaced; such a program
  // calls Finish() itself. Forked children end at once.
  std::chrono::milliseconds signal_grace{0};

  // The sources of events (stepscope/collectors.h); not set:
  // DefaultCollectors().
  std::optional<std::vector<std::unique_ptr<Collector>>> collectors = {};

  // Called with the result of each window, on the background thread, before the
  // files are written. Both arguments are valid only during the call.
  std::function<void(const Trace&, const Report&)> on_report = {};
  // Called on rank 0 with the report of all ranks, if there is one, just before
  // on_report. Valid only during the call.
  std::function<void(const Report&)> on_job_report = {};
  // Called with the times of all steps, on the background thread, after the end
  // of the run. Not called without time_all_steps.
  std::function<void(const WholeRun&)> on_run_end = {};
};

// One thread creates it, calls Step() and destroys it. Only one Profile of a
// process records at a time; a second one stays off and says so on stderr. In a
// forked child a Profile does nothing.
class Profile {
 public:
  // Prints which steps will be recorded. If an error occurs, status() returns
  // it, and the loop runs unprofiled.
  explicit Profile(ProfileOptions options) noexcept;

  // Uses other parts than the defaults (stepscope/profile_parts.h, which is not
  // installed). An exception from `parts` becomes an error in status().
  Profile(ProfileOptions options,
          ProfileParts (*parts)(const ProfileOptions&)) noexcept;

  // If the loop ended early, even by an exception, closes the window and keeps
  // its complete steps. Then waits for the files, at most stop_timeout.
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Call at the end of each iteration. A step lasts from the previous call (or
  // the construction) to this one, unless marked_steps is set. After the last
  // recorded step a call costs one read of the clock, or one branch without
  // time_all_steps.
  void Step() noexcept {
    if (active_) EndStep();
  }

  // With marked_steps: a step begins. Otherwise does nothing.
  void BeginStep() noexcept;

  // Ends the profile now, as the destructor does, and returns status().
  absl::Status Finish() noexcept;

  // With signal_grace: true if a signal has asked the program to end.
  bool is_ending() const noexcept;

  // False if it did not start, which status() explains, or has ended. A source
  // of events that cannot record is an error in status(), but the others do.
  bool is_active() const noexcept { return active_; }

  // The first error, including the background thread's. Any thread may call it.
  // InvalidArgument: an option is invalid. FailedPrecondition: another Profile
  // records, or the loop ended before a step was recorded. DeadlineExceeded:
  // stop_timeout. Others: the file system's error.
  absl::Status status() const noexcept;

 private:
  struct State;
  void EndStep() noexcept;

  bool active_ = false;
  std::unique_ptr<State> state_;  // null only if there was no memory for it
};

}  // namespace stepscope
