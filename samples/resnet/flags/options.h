// Options: the values of the sample's command line.
#pragma once

#include <cstdint>
#include <string>

namespace resnet {

enum class DeviceKind { kCpu, kCuda };
// How SGD updates the parameters: one by one, in lists of tensors, or all in
// one operator.
enum class SgdKind { kLoop, kForeach, kFused };
// Clipping of the gradients' norm, with or without reading the norm back to the
// host.
enum class Clip { kNone, kOnDevice, kReadBack };
// What validation switches off: recording gradients (kNoGrad); also counting
// versions and views (kInference); nothing (kGrad).
enum class ValidateMode { kNoGrad, kInference, kGrad };

struct Options {
  // The network and its step.
  int model = 18;      // 18 or 50
  int batch = 32;      // pictures per step
  int accumulate = 1;  // parts of a batch, each with its own passes
  double lr = 0.01;
  SgdKind sgd = SgdKind::kLoop;
  bool set_to_none = true;
  Clip clip = Clip::kNone;
  bool channels_last = false;
  bool bf16 = false;
  bool fp16 = false;  // with loss scaling
  bool recompute = false;
  bool conv_bias = false;
  bool cudnn_benchmark = false;
  bool tf32 = false;
  bool cuda_graph = false;

  // The pictures.
  std::string data;        // "jpeg", "fakecifar" or a folder
  std::string data_cache;  // empty: DefaultJpegCache()
  int side = 0;
  int classes = 0;  // 0: the default of the data
  int workers = 0;
  bool pinned = false;
  bool uint8 = false;
  bool variable_sizes = false;

  // Habits that cost time.
  bool item_every_step = false;
  bool print_tensor = false;
  bool anomaly_mode = false;
  bool host_tensors = false;
  int checkpoint_every = 0;  // 0: never

  // The run.
  DeviceKind device = DeviceKind::kCpu;
  int threads = 0;  // intra-op; 0 leaves LibTorch's choice
  int steps = 0;
  int validate_every = 0;  // 0: never
  int validate_batches = 2;
  ValidateMode validate_mode = ValidateMode::kNoGrad;
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

}  // namespace resnet
