// Options: what the command line of the ladder asks for.
#pragma once

#include <absl/status/statusor.h>

#include <span>
#include <string>

#include "measure/settings.h"
#include "resnet/options.h"

namespace ladder {

struct Options {
  resnet::DeviceKind device = resnet::DeviceKind::kCpu;
  measure::Settings always;  // given to every run
  int pairs = 5;
  int steps = 16;  // per run, of which the first 4 are left out
  int active = 6;  // steps that a profile records
  std::string resnet;
  std::string folder;  // empty: runs/ladder_cpu or runs/ladder_gpu
  int limit_s = 24 * 3600;
  std::string results = "samples/resnet/RESULTS.md";
  bool help = false;
};

// Errors: InvalidArgument; the message is a whole sentence for the user.
absl::StatusOr<Options> ParseOptions(std::span<const char* const> args);

std::string HelpText();

}  // namespace ladder
