// The loaders that feed training threads of this process: who they are, and
// which threads work for them. Batches (profile/batches.h) registers them; the
// Session puts those that were waited for into the Trace, and the host
// collector watches their threads.
#pragma once

#include <stepscope/clock.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace stepscope {

// One loader, in the words of event.h's Loader row.
struct LoaderFacts {
  std::string name;         // "train"
  std::string kind;         // "in-process", "threads", "processes"
  int32_t workers = -1;     // -1: unknown
  int64_t batch_size = -1;  // -1: unknown
  std::vector<int64_t> worker_tids = {};  // threads of this process
  bool operator==(const LoaderFacts&) const = default;
};

// Keeps a loader registered while it lives. Any thread may make one; it is then
// used by one thread at a time. A forked child keeps its copy of the list.
class LoaderRegistration {
 public:
  explicit LoaderRegistration(LoaderFacts facts);
  ~LoaderRegistration();
  LoaderRegistration(const LoaderRegistration&) = delete;
  LoaderRegistration& operator=(const LoaderRegistration&) = delete;

  // A batch was waited for. Costs a load while no window is open.
  void MarkWait() noexcept;

 private:
  struct Entry;
  friend struct LoaderList;
  std::shared_ptr<Entry> entry_;  // shared with the list, which outlives us
};

// Fills `tids` with the worker threads of the loaders that live now; returns
// how many there are, which may be more than fit.
size_t LoaderThreads(std::span<int64_t> tids);

// The loaders that were waited for at or after `since`, ended ones included,
// each once; forgets those that have ended.
std::vector<LoaderFacts> TakeLoadersWaitedFor(Ticks since);

}  // namespace stepscope
