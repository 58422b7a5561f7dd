// climb: does what the reports about resnet say, one finding after the other,
// and measures whether it was worth it. --help says what can be changed.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <utility>

#include "ascent.h"
#include "measure/bench.h"
#include "measure/remedies.h"
#include "options.h"
#include "report.h"
#include "sweep.h"

namespace climb {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kGoOnLater = 3;

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "climb: %s\n", std::string(status.message()).c_str());
  return absl::IsResourceExhausted(status) ? kGoOnLater : code;
}

bool ShowsProgress() { return ::isatty(STDERR_FILENO) != 0; }

void Print(const std::string& text) {
  if (ShowsProgress()) std::fputs("\r\33[K", stderr);
  std::fputs((text + "\n").c_str(), stdout);
  std::fflush(stdout);
}

measure::Settings StartOf(const Options& options) {
  measure::Settings start = options.start;
  if (!options.bad_habits) return start;
  for (const measure::Habit& habit : measure::CpuHabits()) {
    start = measure::WithHabit(habit, start);
  }
  return start;
}

// What the sweep crosses its flags with: the work of the climb's end, free of
// the habits.
measure::Settings SweepBase(const Options& options) {
  measure::Settings base = StartOf(options);
  if (!options.bad_habits) return base;
  for (const measure::Habit& habit : measure::CpuHabits()) {
    base = measure::WithoutHabit(habit, base);
  }
  return base;
}

absl::StatusOr<measure::Bench> OpenBench(const Options& options) {
  absl::StatusOr<measure::Workload> workload =
      measure::Workload::Find(options.resnet, options.always);
  if (!workload.ok()) return workload.status();
  measure::BenchOptions bench;
  bench.folder = options.folder;
  bench.limit = std::chrono::seconds(options.limit_s);
  bench.window.active = options.active;
  bench.say = [](const std::string& text) {
    if (ShowsProgress()) {
      std::fprintf(stderr, "\r\33[K%.100s", text.c_str());
    }
  };
  return measure::Bench::Open(*std::move(workload), std::move(bench));
}

// Fills in what is measured after the climb.
absl::Status MeasureEnd(measure::Bench& bench, const Options& options,
                        measure::Length length, Result* result) {
  const measure::Settings& end = result->ascent.end;
  absl::StatusOr<measure::Comparison> whole = bench.Compare(
      result->ascent.start, end, options.pairs, "the whole climb", length);
  if (!whole.ok()) return whole.status();
  result->whole = *std::move(whole);
  if (!result->habits.empty()) {
    absl::Status remaining =
        MeasureRemaining(bench, end, options.pairs, length, result->habits);
    if (!remaining.ok()) return remaining;
  }
  if (!options.sweep) return absl::OkStatus();
  absl::StatusOr<std::vector<Swept>> swept =
      Sweep(bench, Everything(), SweepBase(options), options.sweep_steps,
            options.pairs);
  if (!swept.ok()) return swept.status();
  result->sweep = *std::move(swept);
  const measure::Settings& best = result->sweep[0].settings;
  if (measure::Spelled(best) == measure::Spelled(end)) return absl::OkStatus();
  absl::StatusOr<measure::Comparison> against =
      bench.Compare(best, end, options.pairs, "against the best", length);
  if (!against.ok()) return against.status();
  result->against_best = *std::move(against);
  return absl::OkStatus();
}

absl::StatusOr<Result> Climb(const Options& options) {
  absl::StatusOr<measure::Bench> bench = OpenBench(options);
  if (!bench.ok()) return bench.status();
  const measure::Settings start = StartOf(options);
  const measure::Length length{.steps = options.steps};
  Result result;
  if (options.bad_habits) {
    absl::StatusOr<std::vector<HabitCost>> habits =
        MeasureHabits(*bench, start, options.pairs, length);
    if (!habits.ok()) return habits.status();
    result.habits = *std::move(habits);
    Print(HabitsText(result.habits));
  }
  size_t number = 0;
  absl::StatusOr<Ascent> ascent = Ascend(
      *bench, start,
      {.pairs = options.pairs,
       .profiles = options.profiles,
       .max_changes = options.max_changes,
       .length = length,
       .tell = [&](const Step& step) { Print(StepText(step, ++number)); }});
  if (!ascent.ok()) return ascent.status();
  result.ascent = *std::move(ascent);
  MarkRemoved(result.ascent, result.habits);
  absl::Status measured = MeasureEnd(*bench, options, length, &result);
  if (!measured.ok()) return measured;
  return result;
}

int Main(std::span<const char* const> args) {
  absl::StatusOr<Options> options = ParseOptions(args);
  if (!options.ok()) return Fail(options.status(), kUsage);
  if (options->help) {
    std::fputs(HelpText().c_str(), stdout);
    return 0;
  }
  absl::StatusOr<Result> result = Climb(*options);
  if (!result.ok()) return Fail(result.status(), kFailed);
  Print(EndText(*result));
  if (options->json.empty()) return 0;
  std::ofstream file(options->json);
  file << ToJson(*result);
  file.close();
  if (file) return 0;
  return Fail(absl::UnavailableError("cannot write " + options->json), kFailed);
}

}  // namespace
}  // namespace climb

int main(int argc, char** argv) {
  return climb::Main({argv + 1, static_cast<size_t>(argc - 1)});
}
