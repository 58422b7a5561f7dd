// Profile: the scope a user puts around a training loop.
//
//   stepscope::Profile profile({.log_dir = "runs/resnet", .name = "resnet18"});
//   for (auto& batch : stepscope::Batches(*loader, "train")) {
//     Train(batch);
//     profile.Step();
//   }
//
// By default three steps are only timed, three warm up the profiler and three
// are recorded. After the last recorded step a background thread builds the
// Trace, analyses it, prints the report and writes the files of the log
// directory, while training goes on. No error stops the training: it is one
// line on stderr, and status() returns it; no call throws, aborts, or blocks
// (only the end of the scope waits for the files, at most stop_timeout).
//
// With profile_memory LibTorch may print "Memory block of unknown size was
// allocated before the profiling started" on stderr, as it does with
// torch.profiler. It is harmless: LibTorch reports the release of a block only
// if it also saw the allocation, and it did not see those of older blocks, such
// as the parameters (docs/install.md).
#pragma once

#include <absl/status/status.h>
#include <stepscope/collector.h>
#include <stepscope/schedule.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace stepscope {

class Trace;
struct ProfileParts;
struct Report;

struct ProfileOptions {
  // The folder for the files of all runs of an experiment, created if missing;
  // files of earlier runs stay. "": no files, the report is only printed.
  std::string log_dir = "";
  std::string name = "train";
  Schedule schedule = {};
  // The id (gettid) of the thread that trains; 0: the one that creates the
  // Profile and calls Step().
  int64_t training_tid = 0;

  // What is recorded besides operators; each has a cost only if it is on.
  // Without shapes there are no FLOPs and no findings about sizes and types.
  bool record_shapes = false;   // shapes, strides and types of op arguments
  bool profile_memory = false;  // every allocation and release
  // C++ stacks. One is taken where a chain of nested operators occurs for the
  // first time. With warm-up steps in the schedule that is nearly always in
  // them, and what they record is discarded, so that only a few operators of
  // the recorded steps have a stack; set schedule.warmup = 0 to get all of
  // them.
  bool with_stack = false;
  // The memory for the events of one window. When it is used up, new events are
  // dropped, and the report says how many.
  int64_t max_buffer_bytes = int64_t{256} << 20;

  bool print_report = true;         // on stdout, by rank 0
  bool write_chrome_tb = true;      // for TensorBoard's PyTorch plugin
  bool write_xspace = true;         // for TensorBoard's XProf plugin
  bool write_chrome_kineto = true;  // for Perfetto, HTA and `stepscope analyze`
  // In the XSpace file, draw the waits for batches as a row of the GPU: XProf
  // counts them as input only there.
  bool xspace_input_wait = true;

  // How long the end of the scope waits for the analysis and the files.
  std::chrono::milliseconds stop_timeout = std::chrono::minutes(2);

  // The sources of events (stepscope/collectors.h); not set:
  // DefaultCollectors().
  std::optional<std::vector<std::unique_ptr<Collector>>> collectors = {};

  // Called with the result of each window, on the background thread, before the
  // files are written. Both arguments are valid only during the call.
  std::function<void(const Trace&, const Report&)> on_report = {};
};

// One thread creates it, calls Step() and destroys it. Only one Profile of a
// process records at a time; a second one stays off and says so on stderr. In a
// forked child it does nothing.
class Profile {
 public:
  // Prints which steps will be recorded. After an error, which status()
  // returns, the loop runs unprofiled.
  explicit Profile(ProfileOptions options) noexcept;

  // With other parts than the defaults (stepscope/profile_parts.h, which is not
  // installed). `parts` may throw; that is an error in status().
  Profile(ProfileOptions options,
          ProfileParts (*parts)(const ProfileOptions&)) noexcept;

  // If the loop ended early, even by an exception, closes the window and keeps
  // its complete steps. Then waits for the files, at most stop_timeout.
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Call at the end of each iteration: a step lasts from the previous call (or
  // the construction) to this one. Costs one branch after the last recorded
  // step.
  void Step() noexcept {
    if (recording_) EndStep();
  }

  // Ends the profile now, as the destructor does, and returns status().
  absl::Status Finish() noexcept;

  // The first error, including the background thread's. Any thread may call it.
  // InvalidArgument: an option is invalid. FailedPrecondition: another Profile
  // records, or the loop ended before a step was recorded. DeadlineExceeded:
  // stop_timeout. Others: the file system's error.
  absl::Status status() const noexcept;

 private:
  struct State;
  void EndStep() noexcept;

  bool recording_ = false;
  std::unique_ptr<State> state_;  // null only if there was no memory for it
};

}  // namespace stepscope
