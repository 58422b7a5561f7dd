// Handles traces that need more memory than there is.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <functional>
#include <string>

namespace stepscope {

// The limits of a process's memory, in bytes; -1: unknown or no limit.
struct MemoryState {
  int64_t available = -1;    // MemAvailable and SwapFree of the machine
  int64_t cgroup_left = -1;  // of the process's cgroup (version 2)
  int64_t data_in_use = -1;  // VmData of the process
  int64_t machine = -1;      // MemTotal and SwapTotal
};

// Reads the files below `root`, which is "/" except in tests.
MemoryState ReadMemoryState(const std::string& root);

// Returns the most memory that the process may take in total: what it has now,
// and what is free. -1 if that is unknown, or if the process has mapped far
// more than the machine has, as a sanitizer does.
int64_t MemoryLimitOf(const MemoryState& state);

// Limits the process to MemoryLimitOf() (RLIMIT_DATA), unless a lower limit is
// set. An allocation beyond the limit fails. Without it, the system would swap
// and then kill this program or another one.
void LimitMemory();

// Returns ResourceExhausted with a message: `what` ("cannot read t.json") needs
// too much memory, how much there may be, and what to do.
absl::Status OutOfMemoryError(const std::string& what);

// Runs a command. If it runs out of memory or throws an exception, prints a
// sentence and returns 1.
int RunInMemory(const std::function<int()>& command);

}  // namespace stepscope
