// A Profile that is driven from outside of C++. Its options come as JSON, and
// its reports are fetched instead of printed.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <stepscope/module_hook.h>
#include <stepscope/profile.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "hook_exchange.h"
#include "shim.h"

namespace stepscope {

class WindowResults;

// Calls from several threads wait for each other.
class RunningProfile {
 public:
  // Errors: InvalidArgument for an option; those of Profile::status().
  static absl::StatusOr<std::shared_ptr<RunningProfile>> Start(
      const char* options, const stepscope_shim* shim);

  void BeginStep();
  // Returns bits of STEPSCOPE_STEP_*.
  int Step();
  absl::Status Finish();
  // True if a signal has asked the program to end. After Finish() the
  // destructor ends the program.
  bool IsEnding();
  int Windows() const;
  // Like stepscope_profile_report(). Errors: InvalidArgument, NotFound.
  absl::StatusOr<std::string> Get(int window, std::string_view what) const;

 private:
  RunningProfile() = default;

  std::mutex mutex_;
  Schedule schedule_;
  int64_t first_step_ = 0;
  int64_t steps_ = 0;
  int shown_ = 0;  // windows that Step() has reported
  std::atomic<bool> finished_{false};
  std::shared_ptr<WindowResults> results_;
  std::shared_ptr<HookExchange> exchange_;  // may be null
  std::unique_ptr<Profile> profile_;        // destroyed before the results
};

// FailedPrecondition if the shim was built from other sources. OK for null.
absl::Status CheckShim(const stepscope_shim* shim);

// Sets the hook for profiles that start later with "with_modules". Any thread
// may call it.
void SetModuleHook(const ModuleHook& hook);

// Sets the hook for profiles that start later. Any thread may call it.
void SetExchangeHook(const ExchangeHook& hook);

// Identifies the sources that this build was made from (collectors/ and the
// headers that they include).
const char* ShimId();

}  // namespace stepscope
