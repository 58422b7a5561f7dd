#include "options.h"

#include <charconv>
#include <optional>
#include <vector>

#include "flags.h"

namespace resnet {
namespace {

// What is on when nothing says otherwise: on a CPU, pictures that cost as much
// to load as on a real machine; on a GPU, those of the published case study.
constexpr int kCpuSide = 32;
constexpr int kCudaSide = 224;
// A few steps past the last recorded one show that the profile is off again.
constexpr int kStepsAfter = 3;
constexpr int kSmallestSide = 16;

// Flags that were given, where "not given" is not one of the values.
struct Given {
  std::optional<int> threads;
  std::optional<int> side;
  std::optional<int> steps;
};

auto OneOf(std::vector<std::string> values, std::function<void(size_t)> set) {
  return [values, set](std::string_view text) -> std::string {
    std::string all;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == text) {
        set(i);
        return "";
      }
      all += (i == 0 ? "" : " or ") + values[i];
    }
    return all;
  };
}

auto OptionalAtLeast(int low, std::optional<int>* target) {
  return [=](std::string_view text) -> std::string {
    int number = 0;
    std::string wanted = AtLeast(low, &number)(text);
    if (wanted.empty()) *target = number;
    return wanted;
  };
}

auto Seed(uint64_t* target) {
  return [=](std::string_view text) -> std::string {
    auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), *target);
    bool ok = error == std::errc() && end == text.data() + text.size();
    return ok ? "" : "a whole number of at least 0";
  };
}

std::vector<Flag> Table(Options* o, Given* given) {
  auto title = [](const char* text) { return Flag{text, "", "", nullptr}; };
  return {
      title("The network and its step"),
      {"--model", "18|50", "ResNet-18 or ResNet-50 (18)",
       OneOf({"18", "50"}, [=](size_t i) { o->model = i == 0 ? 18 : 50; })},
      {"--batch", "N", "pictures per step (32)", AtLeast(1, &o->batch)},
      {"--lr", "X", "learning rate of SGD with momentum 0.9 (0.01)",
       Positive(&o->lr)},
      {"--set-to-none", "0|1",
       "let zero_grad drop the gradients (1) or fill them with zeros (0); "
       "LibTorch's default is 1",
       Bit(&o->set_to_none)},
      {"--channels-last", "", "keep pictures and weights as NHWC",
       SetTo(&o->channels_last, true)},
      {"--bf16", "", "run the forward pass under autocast to bfloat16",
       SetTo(&o->bf16, true)},
      title("The pictures"),
      {"--data", "KIND|DIR",
       "jpeg: 1,000 JPEG files of 500x375, made on the first run (default on a "
       "CPU); fakecifar: 10,000 random 32x32 pictures (default on a GPU); or a "
       "folder with CIFAR-10's .bin files, or with one sub-folder of JPEG "
       "files per class",
       Text(&o->data)},
      {"--data-cache", "DIR",
       "where the made JPEG files are kept (~/.cache/stepscope/jpeg-500x375)",
       Text(&o->data_cache)},
      {"--side", "N",
       "side of the square pictures the network sees (32 on a CPU, 224 on a "
       "GPU)",
       OptionalAtLeast(kSmallestSide, &given->side)},
      {"--classes", "N",
       "number of classes (1000 for jpeg, 10 for fakecifar, else as in the "
       "data)",
       AtLeast(2, &o->classes)},
      {"--workers", "N", "loader threads; with 0 the training thread loads (0)",
       AtLeast(0, &o->workers)},
      {"--pinned", "",
       "collate into pinned memory and copy with non_blocking (GPU only)",
       SetTo(&o->pinned, true)},
      {"--uint8", "",
       "hand over bytes and normalise on the device, instead of floats "
       "normalised by the loader",
       SetTo(&o->uint8, true)},
      title("The run"),
      {"--device", "cpu|cuda", "where to train (cpu)",
       OneOf({"cpu", "cuda"},
             [=](size_t i) {
               o->device = i == 0 ? DeviceKind::kCpu : DeviceKind::kCuda;
             })},
      {"--threads", "N",
       "intra-op threads of LibTorch; 0 leaves LibTorch's choice (1 on a CPU, "
       "0 on a GPU)",
       OptionalAtLeast(0, &given->threads)},
      {"--steps", "N", "training steps (the schedule's, and 3 more)",
       OptionalAtLeast(1, &given->steps)},
      {"--validate-every", "N", "validate after every N steps; 0: never (0)",
       AtLeast(0, &o->validate_every)},
      {"--validate-batches", "N", "batches per validation (2)",
       AtLeast(1, &o->validate_batches)},
      {"--validate-grad", "",
       "forget NoGradGuard while validating, as many programs do",
       SetTo(&o->validate_grad, true)},
      {"--seed", "N", "of weights, order and crops (1)", Seed(&o->seed)},
      {"--log-every", "N", "steps between two looks at the loss (5)",
       AtLeast(1, &o->log_every)},
      title("The profile"),
      {"--log-dir", "DIR", "where its files go (runs/resnet)",
       Text(&o->log_dir)},
      {"--no-profile", "", "train without stepscope",
       SetTo(&o->profile, false)},
      {"--skip-first", "N", "steps before the first cycle (0)",
       AtLeast(0, &o->skip_first)},
      {"--wait", "N", "steps of a cycle that are only timed (3)",
       AtLeast(0, &o->wait)},
      {"--warmup", "N", "steps recorded and thrown away (3)",
       AtLeast(0, &o->warmup)},
      {"--active", "N", "steps recorded and analysed (3)",
       AtLeast(0, &o->active)},
      {"--repeat", "N", "number of cycles; 0: as long as the run lasts (1)",
       AtLeast(0, &o->repeat)},
      {"--shapes", "0|1", "record the shapes of the operators' inputs (1)",
       Bit(&o->shapes)},
      {"--memory", "0|1", "record allocations (1)", Bit(&o->memory)},
      {"--stack", "0|1", "record source lines (0)", Bit(&o->stack)},
      title("The measurement"),
      {"--json", "FILE", "write the time of every step and the median to FILE",
       Text(&o->json)},
      {"--warm-steps", "N", "steps the median leaves out at the start (3)",
       AtLeast(0, &o->warm_steps)},
      {"--help", "", "print this text", SetTo(&o->help, true)},
  };
}

absl::Status Complete(const Given& given, Options* o) {
  bool cuda = o->device == DeviceKind::kCuda;
  if (o->data.empty()) o->data = cuda ? "fakecifar" : "jpeg";
  o->side = given.side.value_or(cuda ? kCudaSide : kCpuSide);
  o->threads = given.threads.value_or(cuda ? 0 : 1);
  // A schedule without end is given three cycles to show itself.
  int cycles = o->repeat == 0 ? 3 : o->repeat;
  o->steps = given.steps.value_or(
      o->skip_first + cycles * (o->wait + o->warmup + o->active) + kStepsAfter);
  if (o->pinned && !cuda) {
    return absl::InvalidArgumentError(
        "--pinned needs --device cuda: only a GPU reads pinned memory");
  }
  if (o->validate_grad && o->validate_every == 0) {
    return absl::InvalidArgumentError(
        "--validate-grad needs --validate-every N: without it nothing is "
        "validated");
  }
  // Batch norm needs two values per channel, and the last layers see the side
  // divided by 32.
  if (o->batch == 1 && o->side <= 32) {
    return absl::InvalidArgumentError(
        "--batch 1 needs --side 33 or more: batch norm cannot train on a "
        "single value per channel");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> ParseOptions(std::span<const char* const> args) {
  Options options;
  Given given;
  absl::Status status = ParseFlags(Table(&options, &given), args);
  if (!status.ok()) return status;
  if (options.help) return options;
  if (status = Complete(given, &options); !status.ok()) return status;
  return options;
}

std::string HelpText() {
  Options options;
  Given given;
  return "Trains a ResNet under stepscope, which then says what to change.\n"
         "usage: resnet [flags]     (defaults in brackets)\n" +
         DescribeFlags(Table(&options, &given));
}

}  // namespace resnet
