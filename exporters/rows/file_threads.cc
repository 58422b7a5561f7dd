#include "rows/file_threads.h"

#include <algorithm>
#include <set>
#include <utility>

namespace stepscope {
namespace {

// Viewers take pids 0 to 63 for GPUs, and HTA and Perfetto have trouble with
// negative pids. Such pids are moved to numbers from kMovedPids on.
constexpr int64_t kFirstHostPid = 64;
constexpr int64_t kMovedPids = 1'000'000'000;

// Other pids keep their number, because people compare it with what the system
// shows.
int64_t FilePid(int64_t pid) {
  if (pid >= kFirstHostPid) return pid;
  return kMovedPids + (pid >= 0 ? pid : kFirstHostPid - pid % kMovedPids);
}

}  // namespace

std::vector<ThreadNumbers> FileThreadsOf(const Trace& trace) {
  std::vector<ThreadNumbers> drawn;
  std::set<std::pair<int64_t, int64_t>> used;
  const auto add = [&](int64_t pid, int64_t tid) {
    // If the pair is taken, which may happen to moved ids, takes a tid that no
    // operating system gives out.
    while (!used.emplace(pid, tid).second)
      tid = std::max(tid + 1, kFirstExtraTid);
    drawn.push_back({pid, tid});
  };
  for (const Thread& thread : trace.threads())
    add(FilePid(thread.pid), thread.tid > 0 ? thread.tid : kFirstExtraTid);
  const int64_t pid = trace.threads().empty()
                          ? std::max<int64_t>(trace.run().pid, 0)
                          : trace.threads()[0].pid;
  // The last entry is for events whose thread is not known. It is in the
  // process of the first thread.
  add(FilePid(pid), kFirstExtraTid);
  return drawn;
}

}  // namespace stepscope
