#include <stepscope/loaders.h>
#include <stepscope/range.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "fork_guard.h"

namespace stepscope {

struct LoaderRegistration::Entry {
  LoaderFacts facts;
  std::atomic<Ticks> last_wait{0};
  bool ended = false;
};

// One list per process, because `Batches(*loader, "train")` does not name a
// session. Guarded by SharedMutex(). Never destroyed, because a loader may
// outlive every static object.
struct LoaderList {
  using Entry = LoaderRegistration::Entry;
  std::vector<std::shared_ptr<Entry>> entries;
};

namespace {

LoaderList* const g_loaders = new LoaderList;

// Ended loaders are kept until the next window closes. Their number is limited,
// because a program may make a loader per step.
constexpr size_t kMaxEnded = 64;

}  // namespace

LoaderRegistration::LoaderRegistration(LoaderFacts facts)
    : entry_(std::make_shared<Entry>()) {
  entry_->facts = std::move(facts);
  const std::lock_guard lock(SharedMutex());
  g_loaders->entries.push_back(entry_);
}

LoaderRegistration::~LoaderRegistration() {
  const std::lock_guard lock(SharedMutex());
  auto& entries = g_loaders->entries;
  const bool waited = entry_->last_wait.load(std::memory_order_relaxed) != 0;
  const auto ended = std::count_if(entries.begin(), entries.end(),
                                   [](const auto& e) { return e->ended; });
  if (waited && static_cast<size_t>(ended) < kMaxEnded) {
    entry_->ended = true;
  } else {
    std::erase(entries, entry_);
  }
}

// Only one store and no lock, because it runs in the training loop at each
// batch.
void LoaderRegistration::MarkWait() noexcept {
  // This check also avoids reading ticks before the clock was chosen
  // (NowTicks()).
  if (!IsRecording()) return;
  entry_->last_wait.store(NowTicks(), std::memory_order_relaxed);
}

size_t LoaderThreads(std::span<int64_t> tids) {
  const std::lock_guard lock(SharedMutex());
  size_t count = 0;
  for (const auto& entry : g_loaders->entries) {
    if (entry->ended) continue;
    for (int64_t tid : entry->facts.worker_tids) {
      if (count < tids.size()) tids[count] = tid;
      ++count;
    }
  }
  return count;
}

// `since` is the start of the window. A loader that nobody waited for since
// then (for example that of the validation set) is not part of the window.
std::vector<LoaderFacts> TakeLoadersWaitedFor(Ticks since) {
  const std::lock_guard lock(SharedMutex());
  std::vector<LoaderFacts> loaders;
  for (const auto& entry : g_loaders->entries) {
    const Ticks last_wait = entry->last_wait.load(std::memory_order_relaxed);
    if (last_wait == 0 || last_wait < since) continue;
    // A program that makes a loader per epoch registers the same facts again.
    if (std::find(loaders.begin(), loaders.end(), entry->facts) ==
        loaders.end()) {
      loaders.push_back(entry->facts);
    }
  }
  std::erase_if(g_loaders->entries, [](const auto& e) { return e->ended; });
  return loaders;
}

}  // namespace stepscope
