// RunIdentity: the rank of this process in its job, read from the variables
// that the launcher sets; and the language of its program.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <functional>
#include <string>

namespace stepscope {

struct RunIdentity {
  std::string name;  // of the program, for the RUN folder; may be empty
  std::string host;
  int32_t rank = 0;
  int32_t world_size = 1;
  int32_t local_ranks = 1;  // -1: unknown
  // Equal on all ranks of a job, and different for other jobs and restarts if
  // the launcher's variables differ. "" without a launcher.
  std::string job;
  int64_t start_s = 0;  // seconds since the epoch
  std::string start;    // the same time, local, as YYYY_MM_DD_HH_MM_SS
  // Why the launcher's variables were ignored; "" if they were used.
  std::string problem;
};

using Environment = std::function<const char*(const char*)>;

// Reads RANK, WORLD_SIZE, LOCAL_WORLD_SIZE and torchrun's TORCHELASTIC_RUN_ID,
// TORCHELASTIC_RESTART_COUNT, MASTER_ADDR, MASTER_PORT. Ignores values that are
// not numbers and ranks that are not below the world size, and says so in
// `problem`.
RunIdentity IdentityFrom(const Environment& environment);
RunIdentity OwnIdentity();

// "python" if this process runs a Python interpreter, else "c++".
std::string ProgramLanguage();

}  // namespace stepscope
