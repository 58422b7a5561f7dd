#include "rows/file_threads.h"

#include <algorithm>
#include <set>
#include <utility>

namespace stepscope {
namespace {

// Viewers take pid 0 to 63 for GPUs; HTA and Perfetto have trouble with
// negative ones.
constexpr int64_t kFirstHostPid = 64;
constexpr int64_t kMovedPids = 1'000'000'000;

// Other pids keep their number: people compare it with what the system shows.
int64_t FilePid(int64_t pid) {
  if (pid >= kFirstHostPid) return pid;
  return kMovedPids + (pid >= 0 ? pid : kFirstHostPid - pid % kMovedPids);
}

}  // namespace

std::vector<ThreadNumbers> FileThreadsOf(const Trace& trace) {
  std::vector<ThreadNumbers> drawn;
  std::set<std::pair<int64_t, int64_t>> used;
  const auto add = [&](int64_t pid, int64_t tid) {
    while (!used.emplace(pid, tid).second)
      tid = std::max(tid + 1, kFirstExtraTid);
    drawn.push_back({pid, tid});
  };
  for (const Thread& thread : trace.threads())
    add(FilePid(thread.pid), thread.tid > 0 ? thread.tid : kFirstExtraTid);
  const int64_t pid = trace.threads().empty()
                          ? std::max<int64_t>(trace.run().pid, 0)
                          : trace.threads()[0].pid;
  add(FilePid(pid), kFirstExtraTid);
  return drawn;
}

}  // namespace stepscope
