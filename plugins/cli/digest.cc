#include "digest.h"

#include <absl/status/status.h>
#include <stepscope/read.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace stepscope {
namespace {

// More readers would wait for the disk and hold memory.
constexpr unsigned kMostReaders = 16;

absl::StatusOr<RankDigest> Digest(const std::string& path,
                                  const ToldMachine& machine) {
  absl::StatusOr<Trace> trace = ReadTrace(path);
  if (!trace.ok()) return trace.status();
  trace->TellMachine(machine.cores, machine.threads);
  return DigestRank(*trace);
}

}  // namespace

// Traces are taken one at a time from a common counter, so that a large one
// does not hold up those behind it.
std::vector<absl::StatusOr<RankDigest>> DigestAll(
    const std::vector<std::string>& paths, const ToldMachine& machine) {
  std::vector<absl::StatusOr<RankDigest>> digests(
      paths.size(), absl::UnknownError("not read"));
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < paths.size(); i = next++) {
      digests[i] = Digest(paths[i], machine);
    }
  };
  const size_t readers = std::min<size_t>(
      paths.size(),
      std::clamp(std::thread::hardware_concurrency(), 1u, kMostReaders));
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < readers; ++i) threads.emplace_back(work);
  work();
  threads.clear();
  return digests;
}

}  // namespace stepscope
