// Batches: iterates over a loader and records how long the loop waits for it.
//
//   for (auto& batch : stepscope::Batches(*loader, "train")) { ... }
//
// Works with any loader that has begin() and end(), such as LibTorch's
// DataLoader, without including a LibTorch header. Each wait for a batch
// becomes a range with the name that torch.profiler uses, so that other tools
// recognise it. The first wait includes the creation of the iterator, which
// starts to prefetch. The Trace also contains the loader's number of workers
// and batch size and, for LibTorch's loader, its worker threads.
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

// Facts about one loader, as in the Loader row (event.h).
struct LoaderFacts {
  std::string name;         // "train"
  std::string kind;         // "in-process", "threads", "processes"
  int32_t workers = -1;     // -1: unknown
  int64_t batch_size = -1;  // -1: unknown
  std::vector<int64_t> worker_tids = {};  // threads of this process
  int8_t pin_memory = -1;                 // 0, 1; -1: unknown
  int8_t persistent_workers = -1;         // 0, 1; -1: unknown
  int32_t prefetch_factor = -1;           // per worker; -1: unknown
  bool operator==(const LoaderFacts&) const = default;
};

// Registers a loader while this object exists; Batches does it automatically.
// Any thread may create it, and one thread at a time may use it. A forked child
// has its own copy of the list.
class LoaderRegistration {
 public:
  explicit LoaderRegistration(LoaderFacts facts);
  ~LoaderRegistration();
  LoaderRegistration(const LoaderRegistration&) = delete;
  LoaderRegistration& operator=(const LoaderRegistration&) = delete;

  // Call when the loop waits for a batch. Costs one load while no window is
  // open.
  void MarkWait() noexcept;

 private:
  struct Entry;
  friend struct LoaderList;
  std::shared_ptr<Entry> entry_;  // shared with the list, which outlives this
};

// The range names that Python's DataLoader uses for the wait for one batch.
inline constexpr std::string_view kSingleProcessWait =
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
inline constexpr std::string_view kMultiProcessWait =
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";

namespace internal {

// The threads' ids as the kernel numbers them. Joined threads are left out.
std::vector<int64_t> ThreadIds(std::vector<std::thread>& threads);

// Reads `workers_`, a protected member of LibTorch's DataLoaderBase, through a
// derived class. Returns nothing for loaders without such a member.
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

// The facts that a loader's type offers. Numbers that it lacks are -1.
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

// One pass over a loader, on one thread. `name` tells loaders apart in reports
// ("train", "validation"). Exceptions of the loader pass through. REQUIRES: the
// loader outlives this object.
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
      // Part of the wait, because LibTorch's iterator fetches the first batch
      // when it is compared.
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
  // Exists while the loop waits for a batch.
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
