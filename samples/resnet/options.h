// Options: what the command line of the sample asks for.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <span>
#include <string>

namespace resnet {

enum class DeviceKind { kCpu, kCuda };

struct Options {
  // The network and its step.
  int model = 18;  // 18 or 50
  int batch = 32;
  double lr = 0.01;
  bool set_to_none = true;
  bool channels_last = false;
  bool bf16 = false;

  // The pictures.
  std::string data;        // "jpeg", "fakecifar" or a folder
  std::string data_cache;  // empty: DefaultJpegCache()
  int side = 0;
  int classes = 0;  // 0: what suits the data
  int workers = 0;
  bool pinned = false;
  bool uint8 = false;

  // The run.
  DeviceKind device = DeviceKind::kCpu;
  int threads = 0;  // intra-op; 0 leaves LibTorch's choice
  int steps = 0;
  int validate_every = 0;  // 0: never
  int validate_batches = 2;
  bool validate_grad = false;
  uint64_t seed = 1;
  int log_every = 5;

  // The profile.
  bool profile = true;
  std::string log_dir = "runs/resnet";
  int skip_first = 0;
  int wait = 3;
  int warmup = 3;
  int active = 3;
  int repeat = 1;
  bool shapes = true;
  bool memory = true;
  bool stack = false;

  // The measurement.
  std::string json;  // empty: none is written
  int warm_steps = 3;

  bool help = false;
};

// Reads `args` (without the program's name) and fills in what depends on other
// flags: data, side, threads, steps. Values may follow a blank or "=".
// Errors: InvalidArgument; the message is a whole sentence for the user and,
// for an unknown flag, names the nearest one.
absl::StatusOr<Options> ParseOptions(std::span<const char* const> args);

// All flags with their defaults, 80 columns wide.
std::string HelpText();

}  // namespace resnet
