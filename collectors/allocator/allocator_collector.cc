#include <stepscope/clock.h>
#include <stepscope/collectors.h>
#include <stepscope/trace_builder.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "allocator_stats.h"

namespace stepscope {
namespace {

// Enough for a million steps of one device; a window has only a few.
constexpr size_t kMaxSamples = 1'000'000;

class AllocatorRecording : public Recording {
 public:
  explicit AllocatorRecording(std::vector<DeviceSample> samples)
      : samples_(std::move(samples)) {}

  void AddTo(TraceBuilder& builder, const ClockMap&, const SlotLog&) override {
    for (const DeviceSample& sample : samples_) builder.Add(sample);
  }

 private:
  std::vector<DeviceSample> samples_;
};

// Its only hook is OnStep(). The allocator's trace trackers give more, but they
// cannot be removed, and every allocation would stay slower after the window.
class AllocatorCollector : public Collector {
 public:
  std::string_view name() const override { return "allocator"; }

  absl::Status Start() override {
    samples_.clear();
    samples_.reserve(64);
    allocators_.Find();
    // The counters count from the program's start, but rows contain what each
    // step added.
    allocators_.Read(&before_);
    first_step_ = true;
    return absl::OkStatus();
  }

  void OnStep(int64_t step, int64_t now_ns) override {
    if (samples_.size() >= kMaxSamples) return;
    // A program that is recorded from its start may load CUDA inside its loop.
    if (std::exchange(first_step_, false) && !allocators_.found()) {
      allocators_.Find();
    }
    allocators_.Read(&now_);
    for (const AllocatorStats& stats : now_) {
      samples_.push_back(Sample(stats, step, now_ns));
    }
    std::swap(before_, now_);
  }

  absl::StatusOr<std::unique_ptr<Recording>> Stop() override {
    return std::make_unique<AllocatorRecording>(std::move(samples_));
  }

 private:
  DeviceSample Sample(const AllocatorStats& stats, int64_t step,
                      int64_t now_ns) const;

  DeviceAllocators allocators_;
  bool first_step_ = false;
  std::vector<AllocatorStats> before_;
  std::vector<AllocatorStats> now_;
  std::vector<DeviceSample> samples_;
};

// Returns the difference of two counts. If the count decreased, the program has
// reset its counters, and `now` is the difference.
int64_t Since(int64_t before, int64_t now) {
  return now >= before ? now - before : now;
}

DeviceSample AllocatorCollector::Sample(const AllocatorStats& stats,
                                        int64_t step, int64_t now_ns) const {
  const auto found = std::find_if(
      before_.begin(), before_.end(),
      [&](const auto& before) { return before.device == stats.device; });
  const AllocatorStats before =
      found == before_.end() ? AllocatorStats() : *found;
  DeviceSample sample;
  sample.time_ns = now_ns;
  sample.step = step;
  sample.device = stats.device;
  sample.allocated_bytes = stats.allocated_bytes;
  sample.reserved_bytes = stats.reserved_bytes;
  sample.inactive_split_bytes = stats.inactive_split_bytes;
  sample.segments = stats.segments;
  sample.segment_allocs = Since(before.segment_allocs, stats.segment_allocs);
  sample.segment_frees = Since(before.segment_frees, stats.segment_frees);
  sample.alloc_retries = Since(before.alloc_retries, stats.alloc_retries);
  sample.out_of_memory = Since(before.out_of_memory, stats.out_of_memory);
  return sample;
}

}  // namespace

std::unique_ptr<Collector> MakeAllocatorCollector() {
  return std::make_unique<AllocatorCollector>();
}

}  // namespace stepscope
