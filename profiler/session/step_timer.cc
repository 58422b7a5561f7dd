#include <stepscope/step_timer.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace stepscope {
namespace {

// A full block keeps only the steps that take at least 1.2 times the median of
// the steps around them. The analysis of a window uses the same factor.
constexpr float kSlowTimes = 1.2F;
// The number of steps whose median is the usual step. Small enough to follow a
// run whose steps change over time.
constexpr size_t kAround = 1024;
constexpr size_t kMostRecorded = 4096;
// In a normal distribution, the distance of a quartile from the median, divided
// by the standard deviation.
constexpr double kQuartileOfSd = 0.6745;

// A step is stored as one float, with the sign as a flag: a step of length n
// that was not timed is stored as -n - 1. Lengths up to 16 million ticks are
// exact; longer ones have a relative error of 6e-8.
bool IsTimed(float entry) { return entry >= 0; }
float TicksOf(float entry) { return IsTimed(entry) ? entry : -entry - 1.0F; }

// The median of the timed steps among `entries`; 0 if there are none. REQUIRES:
// count is at most 1.5 * kAround.
float MedianOf(const float* entries, size_t count) noexcept {
  std::array<float, kAround + kAround / 2> timed;
  const auto end = std::copy_if(entries, entries + count, timed.begin(),
                                [](float entry) { return IsTimed(entry); });
  const auto half = timed.begin() + (end - timed.begin()) / 2;
  if (half == end) return 0;
  std::nth_element(timed.begin(), half, end);
  return *half;
}

}  // namespace

// Its types are nested, so that none of their names leaves this file.
struct StepTimer::Sums {
  // Counts by length: 128 cells for each power of two, each 0.8 % wide. The
  // histogram takes 32 KB for any number of steps. Its quantiles are exact to
  // 0.8 %, less than steps vary.
  class Histogram {
   public:
    void Add(float length) noexcept {
      const double exact = std::log2(std::max(length, 1.0F)) * kPerOctave;
      ++cells_[std::min(static_cast<size_t>(exact), cells_.size() - 1)];
      ++count_;
    }
    // Returns the length below which the fraction `frac` of all steps lies; 0
    // if there are none.
    double Quantile(double frac) const {
      double rest = frac * static_cast<double>(count_);
      for (size_t i = 0; i < cells_.size(); ++i) {
        const double in_cell = cells_[i];
        if (in_cell > 0 && rest <= in_cell) {
          return std::exp2((static_cast<double>(i) + rest / in_cell) /
                           kPerOctave);
        }
        rest -= in_cell;
      }
      return 0;
    }
    int64_t count() const { return count_; }

   private:
    static constexpr double kPerOctave = 128;
    std::array<uint32_t, 64 * 128> cells_{};
    int64_t count_ = 0;
  };

  // A step far longer than its neighbours. Such steps are kept one by one,
  // because the distances between them show which stalls recur.
  struct Slow {
    int64_t number = 0;
    double begin = 0;  // ticks since the first step ended
    float length = 0;
    float usual = 0;
    float times() const { return length / usual; }
  };

  Sums() {
    slow.reserve(kMostSlow);
    recorded.reserve(kMostRecorded);
  }
  // REQUIRES: `other` has the same capacities.
  Sums(const Sums& other) : Sums() { *this = other; }
  Sums& operator=(const Sums&) = default;

  void AddSlow(const Slow& step) noexcept {
    if (slow.size() == kMostSlow) DropHalf();
    slow.push_back(step);
  }
  // Drops the less slow half, because memory for slow steps is limited. The
  // least slow steps are the most frequent and matter least.
  void DropHalf() noexcept {
    const auto half = slow.begin() + static_cast<int64_t>(slow.size() / 2);
    std::nth_element(
        slow.begin(), half, slow.end(),
        [](const Slow& a, const Slow& b) { return a.times() > b.times(); });
    dropped += slow.end() - half;
    slow.erase(half, slow.end());
    std::sort(slow.begin(), slow.end(),
              [](const Slow& a, const Slow& b) { return a.number < b.number; });
  }
  void AddRecorded(int64_t number) noexcept {
    if (!recorded.empty() && recorded.back().end == number) {
      ++recorded.back().end;
    } else if (recorded.size() < kMostRecorded) {
      recorded.push_back({number, number + 1});
    }
  }

  Histogram timed;
  double passed = 0;  // ticks since the first step ended
  float longest = 0;
  int64_t longest_number = -1;
  std::vector<Slow> slow;
  std::vector<StepNumbers> recorded;
  int64_t dropped = 0;
};

// All memory is allocated here or in Sums(), so that adding a step never
// allocates.
StepTimer::StepTimer(int64_t first_step)
    : first_step_(first_step),
      begin_(ReadClock()),
      last_(NowTicks()),
      block_(new float[kBlock]),
      folded_(std::make_unique<Sums>()) {}

StepTimer::~StepTimer() = default;

// The first step also contains the time before the loop, so it is left out of
// all figures.
void StepTimer::AddStep(size_t i, float usual, Sums& sums) const noexcept {
  const int64_t before = before_ + static_cast<int64_t>(i);
  if (before == 0) return;
  const int64_t number = first_step_ + before;
  const float length = TicksOf(block_[i]);
  if (IsTimed(block_[i])) {
    sums.timed.Add(length);
    if (length > sums.longest) {
      sums.longest = length;
      sums.longest_number = number;
    }
    if (usual > 0 && length >= kSlowTimes * usual) {
      sums.AddSlow({number, sums.passed, length, usual});
    }
  } else {
    sums.AddRecorded(number);
  }
  sums.passed += length;
}

void StepTimer::AddBlock(Sums& sums) const noexcept {
  for (size_t begin = 0; begin < used_;) {
    // A rest shorter than half a part is added to the last part.
    size_t end = begin + kAround;
    if (end + kAround / 2 > used_) end = used_;
    // The first step is never timed and must not count as usual.
    const size_t from = before_ == 0 && begin == 0 ? 1 : begin;
    const float usual =
        from < end ? MedianOf(block_.get() + from, end - from) : 0;
    for (size_t i = begin; i < end; ++i) AddStep(i, usual, sums);
    begin = end;
  }
}

// Must not allocate or lock, because it runs in the training loop when a block
// is full.
void StepTimer::Fold() noexcept {
  AddBlock(*folded_);
  before_ += static_cast<int64_t>(used_);
  used_ = 0;
}

// Folds a copy of the current block, so that the timer itself does not change
// and the result includes the latest steps.
RunTimes StepTimer::Times() const {
  const ClockMap clock(begin_, ReadClock());
  const auto ns = [&](double ticks) {
    return static_cast<int64_t>(std::llround(ticks * clock.ns_per_tick()));
  };
  // On the heap, because its histogram is too large for a stack.
  const auto all = std::make_unique<Sums>(*folded_);
  AddBlock(*all);
  RunTimes times;
  times.first_step = first_step_;
  times.steps = steps();
  times.timed = all->timed.count();
  times.all_ns = ns(all->passed);
  times.begin_ns = clock.ToNs(last_) - times.all_ns;
  times.p5_ns = ns(all->timed.Quantile(0.05));
  times.median_ns = ns(all->timed.Quantile(0.5));
  times.p95_ns = ns(all->timed.Quantile(0.95));
  times.max_ns = ns(all->longest);
  times.max_step = all->longest_number;
  times.noise_ns = ns((all->timed.Quantile(0.5) - all->timed.Quantile(0.25)) /
                      kQuartileOfSd);
  times.slow.reserve(all->slow.size());
  for (const Sums::Slow& step : all->slow) {
    times.slow.push_back(
        {step.number, ns(step.begin), ns(step.length), ns(step.usual)});
  }
  times.recorded = std::move(all->recorded);
  times.dropped = all->dropped;
  return times;
}

}  // namespace stepscope
