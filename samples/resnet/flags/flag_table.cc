#include "flags/flag_table.h"

#include <charconv>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace resnet {
namespace {

// The type of Flag::set: returns "" if the value was valid, else what it must
// be.
using Setter = std::function<std::string(std::string_view)>;

// `set` is called with the index of the value.
Setter OneOf(std::vector<std::string> values, std::function<void(size_t)> set) {
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

// For a flag without a value that selects one of several settings.
template <typename T>
Setter Choose(T* target, T value) {
  return [=](std::string_view) {
    *target = value;
    return std::string();
  };
}

// Leaves `target` empty if the flag is not given, because its default depends
// on other flags (Complete() in parse_options.cc).
Setter OptionalAtLeast(int low, std::optional<int>* target) {
  return [=](std::string_view text) -> std::string {
    int number = 0;
    std::string wanted = AtLeast(low, &number)(text);
    if (wanted.empty()) *target = number;
    return wanted;
  };
}

Setter Seed(uint64_t* target) {
  return [=](std::string_view text) -> std::string {
    auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), *target);
    bool ok = error == std::errc() && end == text.data() + text.size();
    return ok ? "" : "a whole number of at least 0";
  };
}

// A line that appears only in the help. It has no setter, so ParseFlags() never
// matches it.
Flag Title(const char* text) { return {text, "", "", nullptr}; }

std::vector<Flag> StepFlags(Options* o) {
  return {
      Title("The network and its step"),
      {"--model", "18|50", "ResNet-18 or ResNet-50 (18)",
       OneOf({"18", "50"}, [=](size_t i) { o->model = i == 0 ? 18 : 50; })},
      {"--batch", "N", "pictures per step (32)", AtLeast(1, &o->batch)},
      {"--accumulate", "N",
       "pass the batch in N parts whose gradients add up, so that the memory "
       "of one part is enough (1)",
       AtLeast(1, &o->accumulate)},
      {"--lr", "X", "learning rate of SGD with momentum 0.9 (0.01)",
       Positive(&o->lr)},
      {"--sgd", "KIND",
       "loop: update the parameters one by one, as torch::optim::SGD does; "
       "foreach: as lists of tensors; fused: in one operator (loop)",
       OneOf({"loop", "foreach", "fused"},
             [=](size_t i) { o->sgd = static_cast<SgdKind>(i); })},
      {"--set-to-none", "0|1",
       "let zero_grad drop the gradients (1) or fill them with zeros (0); "
       "LibTorch's default is 1",
       Bit(&o->set_to_none)},
      {"--clip", "", "clip the norm of the gradients to 1, on the device",
       Choose(&o->clip, Clip::kOnDevice)},
      {"--channels-last", "", "keep pictures and weights as NHWC",
       SetTo(&o->channels_last, true)},
      {"--bf16", "", "run the forward pass under autocast to bfloat16",
       SetTo(&o->bf16, true)},
      {"--fp16", "",
       "run it under autocast to float16, and scale the loss so that small "
       "gradients survive",
       SetTo(&o->fp16, true)},
      {"--recompute", "",
       "checkpoint activations: keep each block's input only, and run the "
       "block again in the backward pass",
       SetTo(&o->recompute, true)},
      {"--cudnn-benchmark", "",
       "let cuDNN try its algorithms for each new size (GPU only)",
       SetTo(&o->cudnn_benchmark, true)},
      {"--tf32", "",
       "allow TF32 in float32 convolutions and matrix products, which are "
       "exact without this flag (GPU only)",
       SetTo(&o->tf32, true)},
      {"--cuda-graph", "",
       "capture the step after the first three as a CUDA graph, and replay it "
       "(GPU only)",
       SetTo(&o->cuda_graph, true)},
  };
}

std::vector<Flag> PictureFlags(Options* o, Given* given) {
  return {
      Title("The pictures"),
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
       "collate into pinned memory, in the loader threads if there are any, "
       "and copy with non_blocking (GPU only)",
       SetTo(&o->pinned, true)},
      {"--uint8", "",
       "hand over bytes and normalise on the device, instead of floats "
       "normalised by the loader",
       SetTo(&o->uint8, true)},
  };
}

std::vector<Flag> HabitFlags(Options* o) {
  return {
      Title("Habits that cost time, to be found and dropped"),
      {"--item-every-step", "", "read the loss back in every step",
       SetTo(&o->item_every_step, true)},
      {"--print-tensor", "",
       "print the scores of each step's first picture to stderr",
       SetTo(&o->print_tensor, true)},
      {"--anomaly-mode", "", "leave autograd's search for NaN on",
       SetTo(&o->anomaly_mode, true)},
      {"--host-tensors", "",
       "make the targets, one row of classes per picture, on the host and copy "
       "them to the device",
       SetTo(&o->host_tensors, true)},
      // Short for `--validate-mode grad`. If both are given, the later one
      // counts.
      {"--validate-grad", "",
       "forget NoGradGuard while validating, as many programs do",
       Choose(&o->validate_mode, ValidateMode::kGrad)},
      // Sets the same field as --clip. If both are given, the later one counts.
      {"--clip-sync", "",
       "clip with torch::nn::utils::clip_grad_norm_, which reads the norm back",
       Choose(&o->clip, Clip::kReadBack)},
      {"--checkpoint-every", "N",
       "save the model inside the loop after every N steps; 0: never (0)",
       AtLeast(0, &o->checkpoint_every)},
      {"--variable-sizes", "",
       "draw the side anew for each batch, within a quarter of --side",
       SetTo(&o->variable_sizes, true)},
      {"--conv-bias", "",
       "give convolutions a bias, which the norm behind them takes out again",
       SetTo(&o->conv_bias, true)},
  };
}

std::vector<Flag> RunFlags(Options* o, Given* given) {
  return {
      Title("The run"),
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
      {"--validate-mode", "MODE",
       "validate under nograd (NoGradGuard) or inference (InferenceMode), or "
       "record gradients all the same: grad (nograd)",
       OneOf(
           {"nograd", "inference", "grad"},
           [=](size_t i) { o->validate_mode = static_cast<ValidateMode>(i); })},
      {"--seed", "N", "of weights, order and crops (1)", Seed(&o->seed)},
      {"--log-every", "N", "steps between two looks at the loss (5)",
       AtLeast(1, &o->log_every)},
  };
}

std::vector<Flag> ProfileFlags(Options* o) {
  return {
      Title("The profile"),
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
      Title("The measurement"),
      {"--json", "FILE", "write the time of every step and the median to FILE",
       Text(&o->json)},
      {"--warm-steps", "N", "steps the median leaves out at the start (3)",
       AtLeast(0, &o->warm_steps)},
      {"--help", "", "print this text", SetTo(&o->help, true)},
  };
}

}  // namespace

std::vector<Flag> FlagTable(Options* options, Given* given) {
  std::vector<Flag> all;
  for (std::vector<Flag> part :
       {StepFlags(options), PictureFlags(options, given), HabitFlags(options),
        RunFlags(options, given), ProfileFlags(options)}) {
    for (Flag& flag : part) all.push_back(std::move(flag));
  }
  return all;
}

}  // namespace resnet
