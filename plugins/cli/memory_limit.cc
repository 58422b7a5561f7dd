#include "memory_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <limits>
#include <new>
#include <sstream>
#include <string_view>

#include "errors.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// Reads the number behind "Key:", which the file gives in KiB. Returns bytes;
// -1 if the key is missing.
int64_t BytesOfKey(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key) || line.size() <= key.size() ||
        line[key.size()] != ':') {
      continue;
    }
    int64_t kib = -1;
    std::istringstream(line.substr(key.size() + 1)) >> kib;
    return kib < 0 ? -1 : kib * 1024;
  }
  return -1;
}

// Reads a file with one number. -1 for "max", and if the file cannot be read.
int64_t NumberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t number = -1;
  return file >> number ? number : -1;
}

// For "0::/a/b" in /proc/self/cgroup: returns the least memory left in /a/b, /a
// and /.
int64_t CgroupLeft(const std::string& root) {
  std::ifstream file(root + "proc/self/cgroup");
  std::string line;
  int64_t left = -1;
  while (std::getline(file, line)) {
    if (!line.starts_with("0::/")) continue;
    std::string group = line.substr(3);
    while (true) {
      // The limits of all groups above apply, too, so ask each group up to the
      // root.
      const std::string folder = root + "sys/fs/cgroup" + group + "/memory.";
      const int64_t most = NumberIn(folder + "max");
      const int64_t used = NumberIn(folder + "current");
      if (most >= 0 && used >= 0) {
        const int64_t here = std::max<int64_t>(0, most - used);
        left = left < 0 ? here : std::min(left, here);
      }
      if (group.empty() || group == "/") break;
      group.resize(group.rfind('/'));
    }
  }
  return left;
}

// Returns the sum of two keys of a file such as /proc/meminfo.
int64_t SumOf(const std::string& path, std::string_view a, std::string_view b) {
  const int64_t first = BytesOfKey(path, a);
  return first < 0 ? -1 : first + std::max<int64_t>(0, BytesOfKey(path, b));
}

int64_t LimitNow() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return -1;
  return static_cast<int64_t>(std::min<rlim_t>(
      limit.rlim_cur,
      static_cast<rlim_t>(std::numeric_limits<int64_t>::max())));
}

}  // namespace

MemoryState ReadMemoryState(const std::string& root) {
  const std::string meminfo = root + "proc/meminfo";
  return {.available = SumOf(meminfo, "MemAvailable", "SwapFree"),
          .cgroup_left = CgroupLeft(root),
          .data_in_use = BytesOfKey(root + "proc/self/status", "VmData"),
          .machine = SumOf(meminfo, "MemTotal", "SwapTotal")};
}

int64_t MemoryLimitOf(const MemoryState& state) {
  // If there is more data than the machine has memory, a sanitizer has reserved
  // address space, and no limit is useful.
  if (state.available < 0 || state.data_in_use < 0 ||
      state.data_in_use > state.machine) {
    return -1;
  }
  const int64_t free = state.cgroup_left < 0
                           ? state.available
                           : std::min(state.available, state.cgroup_left);
  // RLIMIT_DATA also counts the memory that the process already has.
  return state.data_in_use + free;
}

void LimitMemory() {
  const int64_t most = MemoryLimitOf(ReadMemoryState("/"));
  const int64_t now = LimitNow();
  // Keep a tighter limit that the user has set.
  if (most < 0 || (now >= 0 && now <= most)) return;
  rlimit limit = {};
  if (getrlimit(RLIMIT_DATA, &limit) != 0) return;
  // Only the soft limit, so that children may raise theirs.
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(most));
  setrlimit(RLIMIT_DATA, &limit);
}

absl::Status OutOfMemoryError(const std::string& what) {
  const int64_t limit = LimitNow();
  return absl::ResourceExhaustedError(
      what + ": out of memory" +
      (limit < 0
           ? ""
           : " (this process may take " + Bytes(static_cast<double>(limit)) +
                 ", what was free when it started)") +
      ". Record fewer steps (12 suffice), choose one rank with --rank, or use "
      "a machine with more memory");
}

int RunInMemory(const std::function<int()>& command) {
  try {
    return command();
  } catch (const std::bad_alloc&) {
    // The command's memory is free again here, so there is room for the
    // message.
    PrintError(OutOfMemoryError("the command did not finish"));
  } catch (const std::exception& error) {
    PrintError("the command did not finish: " + std::string(error.what()) +
               "; please report this");
  }
  return 1;
}

}  // namespace stepscope
