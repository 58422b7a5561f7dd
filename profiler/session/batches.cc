#include <pthread.h>
#include <stepscope/batches.h>
#include <time.h>

namespace stepscope::internal {

std::vector<int64_t> ThreadIds(std::vector<std::thread>& threads) {
  std::vector<int64_t> ids;
  for (std::thread& thread : threads) {
    clockid_t clock;
    if (!thread.joinable() ||
        pthread_getcpuclockid(thread.native_handle(), &clock) != 0) {
      continue;
    }
    // The id of a thread's CPU clock contains the thread's id, inverted, above
    // three bits of flags (Linux, include/linux/posix-timers.h). glibc has no
    // function that returns it.
    ids.push_back(~(static_cast<int64_t>(clock) >> 3));
  }
  return ids;
}

}  // namespace stepscope::internal
