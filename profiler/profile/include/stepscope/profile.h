// Profile: the scope a user puts around a training loop.
//
//   stepscope::Profile profile({.log_dir = "runs/resnet", .name = "resnet18"});
//   for (auto& batch : stepscope::Batches(*loader, "train")) {
//     Train(batch);
//     profile.Step();
//   }
//
// When the recorded steps have ended, a background thread builds the Trace,
// analyses it, prints the report and writes the files of the log directory; the
// training thread goes on. Whatever goes wrong, training does: an error is one
// line on stderr and in status(), and no call throws, aborts or blocks.
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
  // The experiment's folder, made if missing; files of earlier runs stay. ""
  // writes nothing and only prints the report.
  std::string log_dir = "";
  std::string name = "train";
  Schedule schedule = {};
  // The thread that trains, where another one makes the Profile and calls
  // Step(); 0: the one that does.
  int64_t training_tid = 0;

  // Each costs only where asked for.
  bool record_shapes = false;   // shapes, strides and types of op arguments
  bool profile_memory = false;  // every allocation and release
  bool with_stack = false;      // C++ stacks, once per distinct chain of ops
  // What one window may record in memory; beyond it the newest events are
  // dropped, and the report says how many.
  int64_t max_buffer_bytes = int64_t{256} << 20;

  bool print_report = true;         // on stdout, by rank 0
  bool write_chrome_tb = true;      // for TensorBoard's PyTorch plugin
  bool write_xspace = true;         // for TensorBoard's XProf
  bool xspace_input_wait = true;    // with waits for batches as a row of the
                                    // GPU, which XProf counts as input
  bool write_chrome_kineto = true;  // for Perfetto, HTA, `stepscope analyze`

  // How long the end of the scope waits for analysis and files.
  std::chrono::milliseconds stop_timeout = std::chrono::minutes(2);

  // The sources of events; nothing means all this build has.
  std::optional<std::vector<std::unique_ptr<Collector>>> collectors = {};

  // Called with each window's result, on the background thread, before the
  // files are written.
  std::function<void(const Trace&, const Report&)> on_report = {};
};

// One thread makes it, calls Step() and destroys it. At most one Profile of a
// process records at a time; a second one stays off and says so. In a forked
// child it does nothing.
class Profile {
 public:
  // Prints the plan in steps. Errors: status(); the loop then runs unprofiled.
  explicit Profile(ProfileOptions options) noexcept;

  // For programs that bring parts of their own (stepscope/profile_parts.h,
  // which is not installed); whatever `parts` throws is an error in status().
  Profile(ProfileOptions options,
          ProfileParts (*parts)(const ProfileOptions&)) noexcept;

  // Ends the last window if the loop was left early, even by an exception, and
  // keeps what it has; then waits for the files, at most stop_timeout.
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Call at the end of each iteration: step N runs from the call before (or
  // from the construction) to this one. Free once the schedule has run out.
  void Step() noexcept {
    if (recording_) EndStep();
  }

  // Ends the profile as the destructor does, now. Gives status().
  absl::Status Finish() noexcept;

  // The first error there was, the background thread's included; any thread may
  // ask. InvalidArgument (options), FailedPrecondition (another Profile, or the
  // loop ended before anything was recorded), what the file system said, or
  // DeadlineExceeded (stop_timeout).
  absl::Status status() const noexcept;

 private:
  struct State;
  void EndStep() noexcept;

  bool recording_ = false;
  std::unique_ptr<State> state_;  // null only if there was no memory for it
};

}  // namespace stepscope
