// What happens where a trace needs more memory than there is.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <functional>
#include <string>

namespace stepscope {

// What limits the memory of a process, in bytes; -1: unknown or no limit.
struct MemoryState {
  int64_t available = -1;    // MemAvailable and SwapFree of the machine
  int64_t cgroup_left = -1;  // of the process's cgroup (version 2)
  int64_t data_in_use = -1;  // VmData of the process
  int64_t machine = -1;      // MemTotal and SwapTotal
};

// From the files below `root`, "/" but for tests.
MemoryState ReadMemoryState(const std::string& root);

// The most that the process may take in all: what it has, and what is free. -1
// where that is unknown, or where the process has mapped far more than the
// machine has, as a sanitizer does.
int64_t MemoryLimitOf(const MemoryState& state);

// Limits the process to that (RLIMIT_DATA), unless a lower limit is set. An
// allocation beyond it fails, where the system would otherwise swap and then
// kill this program or another one.
void LimitMemory();

// ResourceExhausted: `what` ("cannot read t.json") needs too much memory, how
// much there may be, and what to do.
absl::Status OutOfMemoryError(const std::string& what);

// Runs a command. Where it runs out of memory, or an exception escapes from it,
// prints a sentence and returns 1.
int RunInMemory(const std::function<int()>& command);

}  // namespace stepscope
