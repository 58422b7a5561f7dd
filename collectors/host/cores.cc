#include "cores.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "proc_file.h"

namespace stepscope {
namespace {

// Returns the number of cores in a list like "0-3,8,10-11"; -1 if it is
// invalid.
int64_t CountList(std::string_view list) {
  int64_t count = 0;
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), part.size() + 1));
    int64_t first = -1;
    const char* const end = part.data() + part.size();
    const auto [rest, error] = std::from_chars(part.data(), end, first);
    if (error != std::errc()) return -1;
    int64_t last = first;
    if (rest != end) {
      if (*rest != '-' ||
          std::from_chars(rest + 1, end, last).ec != std::errc()) {
        return -1;
      }
    }
    count += last - first + 1;
  }
  return count > 0 ? count : -1;
}

// Rounded up, because with half a core of quota one thread can still run, with
// pauses.
int64_t RoundUp(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return -1;
  return (quota + period - 1) / period;
}

int64_t Smaller(int64_t a, int64_t b) {
  if (a < 0) return b;
  return b < 0 ? a : std::min(a, b);
}

// Version 2: "max 100000" or "150000 100000".
int64_t QuotaV2(const std::string& folder) {
  const std::string text = ReadSmallFile(folder + "/cpu.max");
  return RoundUp(NumberAt(text, 0), NumberAt(text, 1));
}

// Version 1: a quota of -1 means no limit.
int64_t QuotaV1(const std::string& folder) {
  return RoundUp(NumberAt(ReadSmallFile(folder + "/cpu.cfs_quota_us"), 0),
                 NumberAt(ReadSmallFile(folder + "/cpu.cfs_period_us"), 0));
}

// Returns the smallest quota of `group` and all groups above it. In a container
// the path of the group may be the host's path, which does not exist here. The
// walk up then still reaches the mount point, which is the container's group.
template <typename Quota>
int64_t TightestQuota(const std::string& mount, std::string group,
                      Quota quota) {
  int64_t cores = -1;
  for (;;) {
    while (group.ends_with('/')) group.pop_back();
    cores = Smaller(cores, quota(mount + group));
    if (group.empty()) return cores;
    group.erase(group.find_last_of('/') == std::string::npos
                    ? 0
                    : group.find_last_of('/'));
  }
}

bool ListHas(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    if (part == name) return true;
    list.remove_prefix(std::min(list.size(), part.size() + 1));
  }
  return false;
}

int64_t GroupCores(const std::string& root) {
  const std::string groups = ReadSmallFile(root + "/proc/self/cgroup");
  const std::string mounts = root + "/sys/fs/cgroup";
  int64_t cores = -1;
  std::string_view rest = groups;
  while (!rest.empty()) {  // lines of "number:controllers:path"
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers =
        line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (controllers.empty()) {
      cores = Smaller(cores, TightestQuota(mounts, path, QuotaV2));
    } else if (ListHas(controllers, "cpu")) {
      for (const std::string& folder :
           {std::string(controllers), std::string("cpu")}) {
        cores =
            Smaller(cores, TightestQuota(mounts + "/" + folder, path, QuotaV1));
      }
    }
  }
  return cores;
}

}  // namespace

// The affinity mask (taskset, numactl) and the quota (containers) are
// independent limits, so the smaller one counts.
int32_t UsableCores(const std::string& root) {
  const std::string status = ReadSmallFile(root + "/proc/self/status");
  return static_cast<int32_t>(Smaller(
      CountList(TextOf(status, "Cpus_allowed_list")), GroupCores(root)));
}

std::string CpuModel(const std::string& root) {
  const std::string text = ReadSmallFile(root + "/proc/cpuinfo");
  for (const char* key : {"model name", "Model", "cpu model", "Processor"}) {
    if (const std::string_view model = TextOf(text, key); !model.empty()) {
      return std::string(model);
    }
  }
  return "";
}

}  // namespace stepscope
