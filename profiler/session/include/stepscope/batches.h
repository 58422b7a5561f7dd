// Batches: a loader whose waits are recorded.
//
//   for (auto& batch : stepscope::Batches(*loader, "train")) { ... }
//
// Works for any loader with begin() and end() like LibTorch's DataLoader. The
// time until each batch is there (making the iterator, which prefetches, counts
// with the first) becomes a range under the name that readers of Chrome traces
// know from torch.profiler; the loader's workers, batch size and, for
// LibTorch's, its threads reach the Trace. Needs no LibTorch header itself.
#pragma once

#include <stepscope/range.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
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

// As Python's DataLoader names the wait for one batch.
inline constexpr std::string_view kSingleProcessWait =
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
inline constexpr std::string_view kMultiProcessWait =
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";

namespace internal {

// The kernel's ids of running threads; a thread that was joined is left out.
std::vector<int64_t> ThreadIds(std::vector<std::thread>& threads);

// Reaches `workers_`, which LibTorch's DataLoaderBase keeps protected: a
// derived class may name it. Gives nothing for loaders without one.
template <typename Loader>
struct WorkerAccess : Loader {
  template <typename Self = WorkerAccess>
  static auto Threads(Loader& loader, int)
      -> decltype((loader.*(&Self::workers_)), std::vector<int64_t>()) {
    using Member = std::remove_cvref_t<decltype(loader.*(&Self::workers_))>;
    if constexpr (std::is_same_v<Member, std::vector<std::thread>>) {
      return ThreadIds(loader.*(&Self::workers_));
    } else {
      return {};
    }
  }
  template <typename Self = WorkerAccess>
  static std::vector<int64_t> Threads(Loader&, long) {
    return {};
  }
};

// What a loader tells about itself; -1 where it tells nothing.
template <typename Loader>
LoaderFacts FactsOf(Loader& loader, std::string_view name) {
  LoaderFacts facts{.name = std::string(name), .kind = ""};
  if constexpr (requires { static_cast<int32_t>(loader.options().workers); }) {
    facts.workers = static_cast<int32_t>(loader.options().workers);
  }
  if constexpr (requires {
                  static_cast<int64_t>(loader.options().batch_size);
                }) {
    facts.batch_size = static_cast<int64_t>(loader.options().batch_size);
  }
  if (facts.workers >= 0)
    facts.kind = facts.workers == 0 ? "in-process" : "threads";
  if constexpr (std::is_class_v<Loader> && !std::is_final_v<Loader>) {
    facts.worker_tids = WorkerAccess<Loader>::Threads(loader, 0);
  }
  return facts;
}

}  // namespace internal

// One pass over a loader. REQUIRES: the loader outlives it; one thread uses it.
template <typename Loader>
class Batches {
 public:
  explicit Batches(Loader& loader, std::string_view name = "")
      : loader_(loader),
        name_(name),
        facts_(internal::FactsOf(loader, name)),
        wait_name_(facts_.workers > 0 ? kMultiProcessWait : kSingleProcessWait),
        registration_(facts_) {}
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  class Iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;

    decltype(auto) operator*() { return *at_; }
    Iterator& operator++() {
      const Wait wait(*batches_);
      ++at_;
      // LibTorch's iterator fetches the first batch when it is compared.
      done_ = !(at_ != end_);
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return done_; }

   private:
    friend class Batches;
    using Inner = decltype(std::declval<Loader&>().begin());
    using End = decltype(std::declval<Loader&>().end());
    explicit Iterator(Batches* batches)
        : batches_(batches),
          at_(batches->loader_.begin()),
          end_(batches->loader_.end()),
          done_(!(at_ != end_)) {}

    Batches* batches_;
    Inner at_;
    End end_;
    bool done_;
  };

  // Starts the pass and waits for the first batch.
  Iterator begin() {
    const Wait wait(*this);
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  // Lives while the loop waits for a batch.
  struct Wait {
    explicit Wait(Batches& batches)
        : range(RangeKind::kLoader, batches.wait_name_, batches.name_) {
      batches.registration_.MarkWait();
    }
    ScopedRange range;
  };

  Loader& loader_;
  std::string name_;
  LoaderFacts facts_;
  std::string_view wait_name_;
  LoaderRegistration registration_;
};

}  // namespace stepscope
