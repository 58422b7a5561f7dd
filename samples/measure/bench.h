// Bench: where settings of a workload are timed and profiled. It remembers what
// it did, so a measurement that was stopped goes on where it was.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <functional>
#include <string>

#include "comparison.h"
#include "journal.h"
#include "workload.h"

namespace measure {

struct BenchOptions {
  // Where runs and profiles are kept; made if it is not there.
  std::string folder;
  // Time enough for all runs together; those that were remembered take none.
  std::chrono::seconds limit = std::chrono::hours(24);
  Window window;
  // Told of every run before it starts. May be empty.
  std::function<void(const std::string&)> say;
};

class Bench {
 public:
  // Errors: Unavailable (the folder cannot be made), those of Journal::Open().
  static absl::StatusOr<Bench> Open(Workload workload, BenchOptions options);

  // Times `settings`, or remembers it. `purpose`, `number` and the `partner`
  // that runs in turn with it tell runs of the same settings apart: a new one
  // is a new measurement. Errors: those of Workload::Time(); ResourceExhausted,
  // if the time is over (what was measured is kept).
  absl::StatusOr<RunTimes> Time(const Settings& settings, Length length,
                                const std::string& purpose, int number,
                                const Settings* partner = nullptr);

  // After how many steps both settings repeat what they do, see PeriodOf().
  int Period(const Settings& a, const Settings& b) const;
  int Period(const Settings& settings) const {
    return Period(settings, settings);
  }

  // `pairs` of both in turn, each of whole periods that take `length` or more,
  // see Compare().
  absl::StatusOr<Comparison> Compare(const Settings& before,
                                     const Settings& after, int pairs,
                                     const std::string& purpose,
                                     Length length = {});

  // Profiles `settings`, or remembers it; `name` becomes a folder. `times` as
  // many steps are recorded as BenchOptions::window says.
  // Errors: those of Workload::Profile(); ResourceExhausted, as above.
  absl::StatusOr<Advice> Profile(const Settings& settings,
                                 const std::string& name, int times = 1);

  const Workload& workload() const { return workload_; }

 private:
  Bench(Workload workload, BenchOptions options, Journal journal);
  absl::Status CheckTime() const;
  void Say(const std::string& text) const;

  Workload workload_;
  BenchOptions options_;
  Journal journal_;
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace measure
