// EndingSignals: on SIGINT or SIGTERM, ends the profile first, and then the
// program, as the signal would have done.
//
// A signal handler may not lock or allocate, so it only stores the signal and
// wakes a thread of this class. The training thread notices the signal at its
// next step, finishes the profile and ends the program. If no step ends in
// time, the woken thread ends the program at the end of the grace period.
#pragma once

#include <chrono>
#include <memory>

namespace stepscope {

// Used by the training thread. Only one may exist per process.
class EndingSignals {
 public:
  // Handles SIGINT and SIGTERM unless the program has changed their default
  // action. Returns null if the program has changed both, if an EndingSignals
  // already exists, or if the system gives no thread. Signals then act as
  // before.
  static std::unique_ptr<EndingSignals> Make(std::chrono::milliseconds grace);

  // Restores the default actions, unless the program has installed handlers.
  ~EndingSignals();
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;

  // The first signal that came; 0 if none has come.
  static int Caught() noexcept;
  // The rest of the grace period, which starts with the first signal.
  static std::chrono::milliseconds Left() noexcept;
  // Returns, for example, "SIGTERM".
  static const char* NameOf(int signal) noexcept;

  // Ends the program with the signal that was caught.
  static void EndProgram() noexcept;

 private:
  EndingSignals() = default;
};

}  // namespace stepscope
