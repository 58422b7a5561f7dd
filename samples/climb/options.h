// Options: what the command line of climb asks for.
#pragma once

#include <absl/status/statusor.h>

#include <span>
#include <string>

#include "measure/settings.h"

namespace climb {

struct Options {
  measure::Settings start;   // where the climb begins
  measure::Settings always;  // what no finding changes: --side
  bool bad_habits = false;   // all of measure::CpuHabits() at the start
  int pairs = 5;             // of interleaved runs, per comparison
  int steps = 36;            // per run
  int profiles = 3;          // of which the middle one is followed
  int active = 10;           // steps a profile records
  int max_changes = 16;      // after these the climb gives up
  bool sweep = true;
  int sweep_steps = 8;  // per run of the first round
  std::string resnet;   // empty: beside this program
  std::string folder = "runs/climb";
  int limit_s = 24 * 3600;
  std::string json;  // empty: none is written
  bool help = false;
};

// Errors: InvalidArgument, as a sentence for the user.
absl::StatusOr<Options> ParseOptions(std::span<const char* const> args);

std::string HelpText();

}  // namespace climb
