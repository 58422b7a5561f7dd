#include "bench.h"

#include <filesystem>
#include <fstream>
#include <numeric>
#include <system_error>
#include <utility>

namespace measure {
namespace {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

// What tells a profile that is complete, and of which settings it is.
constexpr char kDone[] = "profiled.txt";

std::string AllSettings(const Workload& workload, const Settings& settings) {
  return workload.always().With(settings).Text();
}

}  // namespace

Bench::Bench(Workload workload, BenchOptions options, Journal journal)
    : workload_(std::move(workload)),
      options_(std::move(options)),
      journal_(std::move(journal)),
      deadline_(Clock::now() + options_.limit) {}

absl::StatusOr<Bench> Bench::Open(Workload workload, BenchOptions options) {
  std::error_code code;
  fs::create_directories(options.folder, code);
  if (code) {
    return absl::UnavailableError("cannot make " + options.folder + ": " +
                                  code.message());
  }
  absl::StatusOr<Journal> journal =
      Journal::Open(options.folder + "/runs.jsonl");
  if (!journal.ok()) return journal.status();
  return Bench(std::move(workload), std::move(options), *std::move(journal));
}

absl::StatusOr<RunTimes> Bench::Time(const Settings& settings, Length length,
                                     const std::string& purpose, int number,
                                     const Settings* partner) {
  const std::string all = AllSettings(workload_, settings);
  std::string key = purpose + " " + std::to_string(number) + ", " +
                    std::to_string(length.steps) + " steps: " + all;
  if (partner != nullptr) {
    key += ", beside: " + AllSettings(workload_, *partner);
  }
  if (const RunTimes* run = journal_.Find(key)) return *run;
  if (absl::Status s = CheckTime(); !s.ok()) return s;
  Say(purpose + " " + std::to_string(number + 1) + ": " + all);
  absl::StatusOr<RunTimes> times =
      workload_.Time(settings, length, options_.folder + "/timed");
  if (!times.ok()) return times.status();
  if (absl::Status s = journal_.Add(key, *times); !s.ok()) return s;
  return times;
}

absl::StatusOr<Comparison> Bench::Compare(const Settings& before,
                                          const Settings& after, int pairs,
                                          const std::string& purpose,
                                          Length length) {
  const int period = Period(before, after);
  length = WholePeriods(length, period);
  return measure::Compare(
      [&](const Settings& settings, int pair) {
        return Time(settings, length, purpose, pair,
                    &settings == &before ? &after : &before);
      },
      before, after, pairs, period);
}

int Bench::Period(const Settings& a, const Settings& b) const {
  return std::lcm(PeriodOf(workload_.always().With(a)),
                  PeriodOf(workload_.always().With(b)));
}

absl::StatusOr<Advice> Bench::Profile(const Settings& settings,
                                      const std::string& name, int times) {
  Window window = options_.window;
  window.active *= times;
  const std::string all = AllSettings(workload_, settings);
  const std::string what = all + ", steps " + std::to_string(window.wait) +
                           " + " + std::to_string(window.warmup) + " + " +
                           std::to_string(window.active);
  const std::string folder = options_.folder + "/" + name;
  const std::string done = folder + "/" + kDone;
  if (absl::StatusOr<std::string> told = ReadFile(done); told.ok()) {
    const size_t newline = told->find('\n');
    if (newline != told->npos && told->substr(0, newline) == what) {
      const std::string path = told->substr(newline + 1);
      absl::StatusOr<std::string> json = ReadFile(path);
      if (json.ok()) return ParseAdvice(*json, path);
    }
  }
  if (absl::Status s = CheckTime(); !s.ok()) return s;
  Say("profiling " + all);
  absl::StatusOr<Advice> advice = workload_.Profile(settings, folder, window);
  if (!advice.ok()) return advice.status();
  std::ofstream(done) << what << '\n' << advice->path;
  return advice;
}

absl::Status Bench::CheckTime() const {
  if (Clock::now() < deadline_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      "the time is over; the same command goes on from " + options_.folder);
}

void Bench::Say(const std::string& text) const {
  if (options_.say) options_.say(text);
}

}  // namespace measure
