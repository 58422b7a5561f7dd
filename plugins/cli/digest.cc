#include "digest.h"

#include <absl/status/status.h>
#include <stepscope/read.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "memory_limit.h"

namespace stepscope {
namespace {

// Chooses the rank that is drawn among traces that several threads read. Which
// one is the lowest is known only in the end, so a lower one replaces the one
// before.
class RankChoice {
 public:
  explicit RankChoice(DrawnRank* drawn) : drawn_(drawn) {}

  // True if what a page shows of this trace should be collected. Of ranks that
  // are not known, the first trace of `paths` counts as the lowest.
  bool Claim(int32_t rank, size_t index) {
    if (drawn_ == nullptr) return false;
    if (drawn_->wanted >= 0 && rank != drawn_->wanted) return false;
    const std::scoped_lock lock(mutex_);
    const std::pair<int32_t, size_t> place = {rank, index};
    if (claimed_ && place > lowest_) return false;
    claimed_ = true;
    lowest_ = place;
    return true;
  }
  void Take(int32_t rank, size_t index, PageDetails details) {
    const std::scoped_lock lock(mutex_);
    // A lower rank has claimed the place meanwhile, and its drawing counts.
    if (lowest_ != std::pair{rank, index}) return;
    drawn_->found = true;
    drawn_->details = std::move(details);
  }

 private:
  DrawnRank* const drawn_;
  std::mutex mutex_;
  bool claimed_ = false;
  std::pair<int32_t, size_t> lowest_;
};

// Nothing happened, and the recorder does not say why. A recording of nothing
// has names of threads, and settings, too.
bool IsEmpty(const Trace& trace) {
  return trace.losses().empty() && trace.steps().empty() &&
         trace.ranges().empty() && trace.ops().empty() &&
         trace.runtime_calls().empty() && !trace.has_device_work() &&
         trace.syncs().empty() && trace.overheads().empty() &&
         trace.python_frames().empty() && trace.allocations().empty() &&
         trace.communications().empty() && trace.host_usage().empty() &&
         trace.device_memory().empty() && trace.device_samples().empty();
}

absl::StatusOr<RankDigest> DigestOrThrow(const std::string& path, size_t index,
                                         const ToldMachine& machine,
                                         RankChoice& choice) {
  absl::StatusOr<Trace> trace = ReadTrace(path);
  if (!trace.ok()) return trace.status();
  if (IsEmpty(*trace)) {
    return absl::InvalidArgumentError(path +
                                      " has no events: was anything recorded?");
  }
  // Before the analysis, whose rules about threads and cores ask for them.
  trace->TellMachine(machine.cores, machine.threads);
  const int32_t rank = trace->run().rank;
  const bool is_drawn = choice.Claim(rank, index);
  PageDetails details;
  RankDigest digest = DigestRank(*trace, is_drawn ? &details : nullptr);
  digest.report.path_slices.clear();  // not printed, and the largest part
  if (is_drawn) choice.Take(rank, index, std::move(details));
  return digest;
}

// Nobody would catch an exception on a reader's thread, and one trace that is
// too large must not cost the others.
absl::StatusOr<RankDigest> Digest(const std::string& path, size_t index,
                                  const ToldMachine& machine,
                                  RankChoice& choice) {
  try {
    return DigestOrThrow(path, index, machine, choice);
  } catch (const std::bad_alloc&) {
    return OutOfMemoryError("cannot analyse " + path);
  } catch (const std::exception& error) {
    return absl::InternalError("cannot analyse " + path + ": " + error.what() +
                               "; please report this");
  }
}

}  // namespace

// Traces are taken one at a time from a common counter, so that a large one
// does not hold up those behind it.
std::vector<absl::StatusOr<RankDigest>> DigestAll(
    const std::vector<std::string>& paths, const ToldMachine& machine,
    DrawnRank* drawn) {
  RankChoice choice(drawn);
  std::vector<absl::StatusOr<RankDigest>> digests(
      paths.size(), absl::UnknownError("not read"));
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < paths.size(); i = next++) {
      digests[i] = Digest(paths[i], i, machine, choice);
    }
  };
  const size_t readers = std::min<size_t>(
      paths.size(), std::max(std::thread::hardware_concurrency(), 1u));
  // This thread reads, too, so there is one less to start.
  std::vector<std::jthread> threads;
  try {
    for (size_t i = 1; i < readers; ++i) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // A limit of the system: the threads that there are read all files.
  }
  work();
  threads.clear();
  // What did not fit into memory beside the others may fit alone.
  for (size_t i = 0; readers > 1 && i < paths.size(); ++i) {
    if (absl::IsResourceExhausted(digests[i].status()))
      digests[i] = Digest(paths[i], i, machine, choice);
  }
  return digests;
}

}  // namespace stepscope
