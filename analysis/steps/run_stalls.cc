// Finds the stalls that recur in a run: slow steps whose distances chance does
// not explain.
#include <stepscope/whole_run.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "steps/distances.h"

namespace stepscope {
namespace {

// A step is slow only if it exceeds the usual one by at least 20 % and by 3.5
// robust standard deviations. steps/steps.cc uses the same 3.5 for the steps of
// a window.
constexpr double kStallZ = 3.5;
// Standard deviation / median absolute deviation of a normal distribution.
constexpr double kMadToSd = 1.4826;
// Two steps are of the same kind if their times beyond the usual step differ by
// at most this factor. Our own choice: repeated passes over the same data, or
// repeated writes of the same file, vary by less.
constexpr double kSimilarTimes = 1.5;
// Of the steps at an exact distance, at least this share must be slow. Not all,
// because chance may shorten a stall below the limit.
constexpr double kMinHitFrac = 0.8;
constexpr int64_t kMinHits = 3;
// A series of slow steps counts only if chance would produce at most this many
// such series.
constexpr double kMostByChance = 0.01;
// Distances are a rhythm if their standard deviation / mean is below this. For
// independent events the ratio is 1 (exponential distribution).
constexpr double kRhythmCov = 0.5;
constexpr size_t kMinInRhythm = 5;
// Distances are searched only among the last slow steps, so that the search
// does not take longer for a longer run.
constexpr size_t kMostForPeriod = 2048;
constexpr size_t kAnchors = 256;
constexpr size_t kNext = 24;

struct Excess {
  const SlowStep* step = nullptr;
  double ns = 0;  // time beyond the usual step that no stall found so far took
};

bool Similar(double a, double b) {
  return a <= kSimilarTimes * b && b <= kSimilarTimes * a;
}

// Looks for kinds of slow steps in the times of one run.
class StallFinder {
 public:
  explicit StallFinder(const RunTimes& times) : times_(times) {
    for (const SlowStep& step : times.slow) {
      const double excess = static_cast<double>(step.ns - step.usual_ns);
      if (excess >= Least(step)) left_.push_back({&step, excess});
    }
  }

  std::vector<RunStall> Find() {
    while (TakeExact()) {
    }
    TakeBySize();
    std::ranges::stable_sort(stalls_, std::ranges::greater(), &RunStall::frac);
    return std::move(stalls_);
  }

 private:
  // The steps with numbers `phase`, `phase` + `period`, ...
  struct Line {
    int64_t period = 0;
    int64_t phase = 0;
    auto operator<=>(const Line&) const = default;
  };
  struct Fit {
    Line line;
    double extra_ns = 0;            // median of the hits
    double all_ns = 0;              // excess time that the line explains
    double tolerance_ns = 0;        // how much the hits may vary by chance
    std::vector<size_t> hits = {};  // in left_
  };

  // The smallest excess that counts.
  double Least(const SlowStep& step) const {
    return std::max(0.2 * static_cast<double>(step.usual_ns),
                    kStallZ * static_cast<double>(times_.noise_ns));
  }

  bool Recorded(int64_t number) const {
    const auto after = std::ranges::upper_bound(times_.recorded, number, {},
                                                &StepNumbers::first);
    return after != times_.recorded.begin() && number < std::prev(after)->end;
  }

  // The number of steps of `line`, from `first` to the end of the run, that
  // were timed, that is, not recorded by a window.
  int64_t TimedOn(const Line& line, int64_t first) const {
    int64_t count = 0;
    for (int64_t at = first; at < times_.end_step(); at += line.period) {
      count += !Recorded(at);
    }
    return count;
  }

  Fit FitOf(const Line& line, size_t from) const {
    Fit fit{.line = line};
    std::vector<double> excess;
    for (size_t i = from; i < left_.size(); ++i) {
      if (left_[i].step->number % line.period != line.phase) continue;
      fit.hits.push_back(i);
      excess.push_back(left_[i].ns);
    }
    fit.extra_ns = LowerMedian(std::move(excess));
    // A far smaller excess is of another kind. A larger one is kept: another
    // stall may have hit the same step.
    std::erase_if(fit.hits, [&](size_t i) {
      return left_[i].ns * kSimilarTimes < fit.extra_ns;
    });
    fit.all_ns = fit.extra_ns * static_cast<double>(fit.hits.size());
    std::vector<double> deviations;
    for (size_t i : fit.hits) {
      deviations.push_back(std::abs(left_[i].ns - fit.extra_ns));
    }
    fit.tolerance_ns = kStallZ * kMadToSd * LowerMedian(std::move(deviations));
    return fit;
  }

  // The probability that, by chance, a given step is a slow one similar to
  // `fit`. If similar steps have a loose rhythm, they are more likely near the
  // times it predicts, so the probability is higher. Sets `similar` to the
  // number of similar steps.
  double Density(const Fit& fit, double* similar) const {
    std::vector<double> numbers;
    for (const Excess& one : left_) {
      if (!Similar(one.ns, fit.extra_ns)) continue;
      numbers.push_back(static_cast<double>(one.step->number));
    }
    *similar = static_cast<double>(numbers.size());
    const double even = std::max(*similar - 2, 1.0) / times_.timed;
    if (fit.hits.size() >= kMinHitFrac * *similar) return std::min(1.0, even);
    const auto [mean, cov] = Distances(numbers);
    // The width of a uniform distribution of that standard deviation.
    const double width = std::max(std::sqrt(12) * mean * cov, 1.0);
    return std::min(1.0, std::max(even, 1 / width));
  }

  // True if the hits are a large enough share of the line and too many to be a
  // coincidence.
  bool IsReal(const Fit& fit) const {
    const int64_t hits = static_cast<int64_t>(fit.hits.size());
    if (hits < kMinHits) return false;
    const int64_t places =
        TimedOn(fit.line, left_[fit.hits.front()].step->number);
    if (hits < kMinHitFrac * static_cast<double>(places)) return false;
    // Any two of the n similar steps define a line. The expression is the
    // expected number of lines that the other hits are on by chance.
    double n = 0;
    const double density = Density(fit, &n);
    return n * (n - 1) / 2 * std::pow(density, static_cast<double>(hits - 2)) <=
           kMostByChance;
  }

  // The lines through two slow steps of similar excess.
  std::map<Line, size_t> Lines(size_t from) const {
    std::map<Line, size_t> lines;
    const size_t stride = std::max<size_t>((left_.size() - from) / kAnchors, 1);
    for (size_t a = from; a < left_.size(); a += stride) {
      for (size_t b = a + 1; b < std::min(a + kNext, left_.size()); ++b) {
        if (!Similar(left_[a].ns, left_[b].ns)) continue;
        const int64_t number = left_[a].step->number;
        const int64_t period = left_[b].step->number - number;
        if (period > 1) ++lines[{period, number % period}];
      }
    }
    return lines;
  }

  // Takes the line that explains the most time out of left_; false if there is
  // none.
  bool TakeExact() {
    if (left_.size() < static_cast<size_t>(kMinHits)) return false;
    const size_t from =
        left_.size() > kMostForPeriod ? left_.size() - kMostForPeriod : 0;
    Fit best;
    for (const auto& [line, count] : Lines(from)) {
      Fit fit = FitOf(line, from);
      // IsReal() is slow, so it is called only for lines that explain more.
      if (fit.all_ns <= best.all_ns) continue;
      if (IsReal(fit)) best = std::move(fit);
    }
    if (best.hits.empty()) return false;
    // The line was found among the last slow steps. Fit it to the whole run.
    Take(FitOf(best.line, 0));
    return true;
  }

  // Adds the stall, and subtracts its time from the excess of its steps. If
  // more is left of a step than the stall's own variation explains, the rest
  // stays in left_, because another kind of stall may have hit the same step.
  void Take(const Fit& fit) {
    std::vector<const SlowStep*> steps;
    double all_ns = 0;
    for (size_t i : fit.hits) {
      Excess& excess = left_[i];
      const bool has_more = excess.ns - fit.extra_ns >=
                            std::max(fit.tolerance_ns, Least(*excess.step));
      const double own = has_more ? fit.extra_ns : excess.ns;
      steps.push_back(excess.step);
      all_ns += own;
      excess.ns -= own;
    }
    RunStall stall = StallOf(steps, fit.extra_ns, all_ns);
    stall.rhythm = RunStall::Rhythm::kEvery;
    stall.period_steps = static_cast<double>(fit.line.period);
    stalls_.push_back(stall);
    std::erase_if(left_, [&](const Excess& excess) {
      return excess.ns < Least(*excess.step);
    });
  }

  RunStall StallOf(const std::vector<const SlowStep*>& steps, double extra_ns,
                   double all_ns) const {
    RunStall stall;
    stall.count = static_cast<int64_t>(steps.size());
    stall.first_step = steps.front()->number;
    stall.last_step = steps.back()->number;
    std::vector<double> numbers;
    std::vector<double> seconds;
    for (const SlowStep* step : steps) {
      numbers.push_back(static_cast<double>(step->number));
      seconds.push_back(static_cast<double>(step->begin_ns) * 1e-9);
    }
    const auto [steps_mean, steps_cov] = Distances(numbers);
    const auto [seconds_mean, seconds_cov] = Distances(seconds);
    stall.period_steps = steps_mean;
    stall.period_s = seconds_mean;
    if (steps.size() >= kMinInRhythm &&
        std::min(steps_cov, seconds_cov) < kRhythmCov) {
      // If the stalls are far more even in time than in steps, a timer starts
      // them.
      stall.rhythm = seconds_cov < steps_cov / 2 ? RunStall::Rhythm::kSeconds
                                                 : RunStall::Rhythm::kSteps;
    }
    stall.extra_ms = extra_ns * 1e-6;
    stall.frac =
        all_ns / static_cast<double>(std::max<int64_t>(times_.all_ns, 1));
    return stall;
  }

  // Groups the rest by excess: sorted by size, a new group starts wherever the
  // next excess is not similar.
  void TakeBySize() {
    std::ranges::sort(left_, {}, &Excess::ns);
    std::vector<Excess> irregular;
    for (size_t begin = 0; begin < left_.size();) {
      size_t end = begin + 1;
      while (end < left_.size() && Similar(left_[end].ns, left_[end - 1].ns)) {
        ++end;
      }
      const std::vector<Excess> group(
          left_.begin() + static_cast<int64_t>(begin),
          left_.begin() + static_cast<int64_t>(end));
      const RunStall stall = StallOfGroup(group);
      if (stall.rhythm == RunStall::Rhythm::kIrregular) {
        irregular.insert(irregular.end(), group.begin(), group.end());
      } else {
        stalls_.push_back(stall);
      }
      begin = end;
    }
    if (!irregular.empty()) stalls_.push_back(StallOfGroup(irregular));
  }

  RunStall StallOfGroup(std::vector<Excess> group) const {
    std::ranges::sort(group, {},
                      [](const Excess& e) { return e.step->number; });
    std::vector<const SlowStep*> steps;
    std::vector<double> excess;
    double all_ns = 0;
    for (const Excess& one : group) {
      steps.push_back(one.step);
      excess.push_back(one.ns);
      all_ns += one.ns;
    }
    return StallOf(steps, LowerMedian(std::move(excess)), all_ns);
  }

  const RunTimes& times_;
  std::vector<Excess> left_;  // by number, until TakeBySize()
  std::vector<RunStall> stalls_;
};

}  // namespace

WholeRun AnalyzeRun(const RunTimes& times) {
  WholeRun run;
  run.steps = times.timed;
  if (times.timed == 0) return run;
  run.seconds = static_cast<double>(times.all_ns) * 1e-9;
  run.median_ms = static_cast<double>(times.median_ns) * 1e-6;
  run.p5_ms = static_cast<double>(times.p5_ns) * 1e-6;
  run.p95_ms = static_cast<double>(times.p95_ns) * 1e-6;
  run.max_ms = static_cast<double>(times.max_ns) * 1e-6;
  run.max_step = times.max_step;
  run.stalls = StallFinder(times).Find();
  return run;
}

}  // namespace stepscope
