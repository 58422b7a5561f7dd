// EndingSignals: SIGINT and SIGTERM end the profile first, and then the
// program, as they would have.
//
// A signal handler may not lock or allocate, so it does none of the work: it
// notes the signal and wakes a thread of this class. The training thread sees
// the note at its next step, finishes the profile and ends the program. Where
// no step ends, the woken thread ends the program once the grace is over.
#pragma once

#include <chrono>
#include <memory>

namespace stepscope {

// The training thread uses it; there is one at a time in a process.
class EndingSignals {
 public:
  // Handles those of the two signals that the program leaves to the system.
  // Null if it leaves neither, if there is one already, or if the system gives
  // no thread: then signals do what they did.
  static std::unique_ptr<EndingSignals> Make(std::chrono::milliseconds grace);

  // Gives the signals back to the system, unless the program has taken them.
  ~EndingSignals();
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;

  // The first signal that came; 0 if none did.
  static int Caught() noexcept;
  // What is left of the grace since then.
  static std::chrono::milliseconds Left() noexcept;
  // "SIGTERM".
  static const char* NameOf(int signal) noexcept;

  // Ends the program by the signal that was caught.
  static void EndProgram() noexcept;

 private:
  EndingSignals() = default;
};

}  // namespace stepscope
