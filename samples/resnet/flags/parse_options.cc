#include "flags/parse_options.h"

#include <algorithm>

#include "data/transforms.h"
#include "flags/flag_table.h"

namespace resnet {
namespace {

// Default sides of pictures: on a CPU, pictures that cost as much to load as on
// a real machine; on a GPU, the pictures of the published case study.
constexpr int kCpuSide = 32;
constexpr int kCudaSide = 224;
// A few steps after the last recorded one, to show that the profile is off
// again.
constexpr int kStepsAfter = 3;

absl::Status Refuse(std::string why) {
  return absl::InvalidArgumentError(std::move(why));
}

absl::Status CheckGpuOnly(const Options& o) {
  if (o.device == DeviceKind::kCuda) return absl::OkStatus();
  if (o.pinned) {
    return Refuse(
        "--pinned needs --device cuda: only a GPU reads pinned memory");
  }
  if (o.cudnn_benchmark) {
    return Refuse(
        "--cudnn-benchmark needs --device cuda: a CPU does not use cuDNN");
  }
  if (o.tf32) {
    return Refuse("--tf32 needs --device cuda: only GPUs have that format");
  }
  if (o.cuda_graph) {
    return Refuse(
        "--cuda-graph needs --device cuda: there is nothing to capture on a "
        "CPU");
  }
  return absl::OkStatus();
}

// A captured step runs without the host. Options that make the host decide,
// wait or create something new in each step therefore do not work with it.
absl::Status CheckGraph(const Options& o) {
  if (!o.cuda_graph) return absl::OkStatus();
  const char* obstacle = nullptr;
  if (o.print_tensor) obstacle = "--print-tensor";
  if (o.anomaly_mode) obstacle = "--anomaly-mode";
  if (o.host_tensors) obstacle = "--host-tensors";
  if (o.clip == Clip::kReadBack) obstacle = "--clip-sync";
  if (o.variable_sizes) obstacle = "--variable-sizes";
  if (obstacle != nullptr) {
    return Refuse(std::string("--cuda-graph cannot be combined with ") +
                  obstacle +
                  ": a captured step runs without the host, on tensors of one "
                  "size");
  }
  if (o.fp16 && o.sgd != SgdKind::kFused) {
    return Refuse(
        "--cuda-graph with --fp16 needs --sgd fused: the others ask the host "
        "whether to skip a step");
  }
  return absl::OkStatus();
}

absl::Status CheckStep(const Options& o) {
  if (o.bf16 && o.fp16) {
    return Refuse("--bf16 and --fp16 exclude each other: choose one");
  }
  if (o.batch % o.accumulate != 0) {
    return Refuse("--accumulate must divide --batch (" +
                  std::to_string(o.batch) + "), so that all parts are equal");
  }
  // Batch norm needs two values per channel, and the last layers have 1/32 of
  // the side.
  int side = o.variable_sizes ? SmallestDrawnSide(o.side) : o.side;
  if (o.batch / o.accumulate == 1 && side <= 32) {
    return Refuse(
        (o.accumulate > 1 ? std::string("one picture per part")
                          : std::string("--batch 1")) +
        " needs " +
        (o.variable_sizes ? "larger pictures: --side 43" : "--side 33") +
        " or more, as batch norm cannot train on a single value per channel");
  }
  return absl::OkStatus();
}

absl::Status CheckValidation(const Options& o) {
  if (o.validate_mode == ValidateMode::kNoGrad || o.validate_every > 0) {
    return absl::OkStatus();
  }
  return Refuse(std::string(o.validate_mode == ValidateMode::kGrad
                                ? "--validate-grad"
                                : "--validate-mode inference") +
                " needs --validate-every N: without it nothing is validated");
}

// Fills in the defaults that depend on other flags.
void Complete(const Given& given, Options* o) {
  bool cuda = o->device == DeviceKind::kCuda;
  if (o->data.empty()) o->data = cuda ? "fakecifar" : "jpeg";
  o->side = given.side.value_or(cuda ? kCudaSide : kCpuSide);
  o->threads = given.threads.value_or(cuda ? 0 : 1);
  // An endless schedule gets three cycles, so that it shows.
  int cycles = o->repeat == 0 ? 3 : o->repeat;
  o->steps = given.steps.value_or(
      o->skip_first + cycles * (o->wait + o->warmup + o->active) + kStepsAfter);
}

}  // namespace

absl::StatusOr<Options> ParseOptions(std::span<const char* const> args) {
  Options options;
  Given given;
  absl::Status status = ParseFlags(FlagTable(&options, &given), args);
  if (!status.ok()) return status;
  // Print the help even if other flags contradict each other.
  if (options.help) return options;
  // Must come before the checks, which look at values such as sides and
  // devices, even if they were not given.
  Complete(given, &options);
  for (auto check : {CheckGpuOnly, CheckGraph, CheckStep, CheckValidation}) {
    if (status = check(options); !status.ok()) return status;
  }
  return options;
}

std::string HelpText() {
  Options options;
  Given given;
  return "Trains a ResNet under stepscope, which then says what to change.\n"
         "usage: resnet [flags]     (defaults in brackets)\n" +
         DescribeFlags(FlagTable(&options, &given));
}

}  // namespace resnet
