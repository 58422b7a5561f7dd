// Workload: the sample program that is measured, run once per call, as a
// process of its own.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>

#include "advice.h"
#include "run_times.h"
#include "settings.h"

namespace measure {

// How much of a run is timed.
struct Length {
  int steps = 36;      // with the warm ones
  int warm_steps = 4;  // left out
};

// Of a profile: steps that are timed only, thrown away, recorded.
struct Window {
  int wait = 2;
  int warmup = 3;
  int active = 10;
};

class Workload {
 public:
  // `program` is its path; if empty, the program "resnet" beside this one.
  // `always` is given to every run, and may be overruled by a run's settings.
  // Errors: NotFound, with how to get it.
  static absl::StatusOr<Workload> Find(std::string program, Settings always);

  // Times `length.steps` steps without a profile; what the program saves goes
  // to `folder`.
  // Errors: those of RunChild() and ParseRunTimes().
  absl::StatusOr<RunTimes> Time(const Settings& settings, Length length,
                                const std::string& folder) const;

  // Profiles one window, leaves its files in `folder` (emptied first) and
  // returns what the report advises.
  // Errors: those of RunChild() and ParseAdvice(); NotFound, if the run left
  // no advice.
  absl::StatusOr<Advice> Profile(const Settings& settings,
                                 const std::string& folder,
                                 Window window) const;

  const std::string& program() const { return program_; }
  const Settings& always() const { return always_; }

 private:
  Workload(std::string program, Settings always)
      : program_(std::move(program)), always_(std::move(always)) {}

  std::string program_;
  Settings always_;
};

}  // namespace measure
