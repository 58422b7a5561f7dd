#include "step_window.h"

#include <stepscope/nvtx.h>
#include <stepscope/profile.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "profile_options.h"

namespace stepscope {
namespace {

class StepWindow : public NvtxStepListener {
 public:
  explicit StepWindow(const WindowOptions& options)
      : options_(options), pid_(getpid()) {}

  // The first step begins with the first range. Later steps begin at the end of
  // the previous step, so that the time between two ranges belongs to a step.
  void OnStepBegin() noexcept override {
    const std::lock_guard lock(mutex_);
    if (profile_ != nullptr || ended_) return;
    try {
      ProfileOptions options = InjectedProfileOptions(options_, 0);
      options.schedule = options_.schedule;
      profile_ = std::make_unique<Profile>(std::move(options), &InjectedParts);
    } catch (...) {
      ended_ = true;
      std::fputs("stepscope: out of memory; the program runs on unprofiled\n",
                 stderr);
    }
  }

  void OnStepEnd() noexcept override {
    const std::lock_guard lock(mutex_);
    // Ranges may still come after End(), when the profile is finished.
    if (profile_ != nullptr && !ended_) profile_->Step();
  }

  // Called on the thread that ends the program. The training thread may still
  // run.
  void End() noexcept {
    // A forked child has a copy of this object, but not the training thread.
    if (getpid() != pid_) return;
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    if (profile_ != nullptr) {
      // Profile has already printed its errors.
      (void)profile_->Finish();
      return;
    }
    std::fprintf(stderr,
                 "stepscope: the program ended without an NVTX range \"%s\", "
                 "so nothing was recorded; STEPSCOPE_STEP_RANGE names the "
                 "range that is a step\n",
                 options_.step_range.c_str());
  }

 private:
  const WindowOptions options_;
  const pid_t pid_;
  // Held while a step ends, so that the program's exit does not interfere.
  std::mutex mutex_;
  std::unique_ptr<Profile> profile_;
  bool ended_ = false;
};

// Global, because atexit() takes no user pointer. Never destroyed, because
// ranges may come until the process ends.
StepWindow* g_window = nullptr;

}  // namespace

void StartStepWindow(const WindowOptions& options) {
  g_window = new StepWindow(options);
  ListenForNvtxSteps(options.step_range, g_window);
  std::atexit([] { g_window->End(); });
}

}  // namespace stepscope
