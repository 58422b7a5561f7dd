#include "options.h"

#include <string_view>
#include <vector>

#include "resnet/flags.h"

namespace ladder {
namespace {

using resnet::AtLeast;
using resnet::Flag;
using resnet::SetTo;
using resnet::Text;

std::vector<Flag> Table(Options* o) {
  auto title = [](const char* text) { return Flag{text, "", "", nullptr}; };
  auto device = [=](std::string_view text) -> std::string {
    if (text != "cpu" && text != "cuda") return "cpu or cuda";
    o->device =
        text == "cpu" ? resnet::DeviceKind::kCpu : resnet::DeviceKind::kCuda;
    return "";
  };
  auto side = [=](std::string_view text) -> std::string {
    int side = 0;
    std::string wanted = AtLeast(16, &side)(text);
    if (wanted.empty()) o->always.Set("--side", std::string(text));
    return wanted;
  };
  return {
      title("The ladder"),
      {"--device", "cpu|cuda", "which rungs, and where to train (cpu)", device},
      {"--side", "N", "side of the pictures, always (resnet's default)", side},
      {"--results", "FILE",
       "the file whose part for this device is written anew, with a chart "
       "beside it (samples/resnet/RESULTS.md)",
       Text(&o->results)},
      title("The measurement"),
      {"--pairs", "N", "interleaved pairs of runs per rung (5)",
       AtLeast(2, &o->pairs)},
      {"--steps", "N", "steps per run (16)", AtLeast(8, &o->steps)},
      {"--active", "N", "steps that a profile records (6)",
       AtLeast(2, &o->active)},
      title("The program"),
      {"--resnet", "FILE", "the program to measure (resnet beside this one)",
       Text(&o->resnet)},
      {"--work", "DIR",
       "where runs and profiles are kept; the same command goes on from there, "
       "so empty it after a change of the program (runs/ladder_cpu, "
       "runs/ladder_gpu)",
       Text(&o->folder)},
      {"--limit", "SECONDS",
       "stop after so long, with exit code 3; the same command goes on",
       AtLeast(1, &o->limit_s)},
      {"--help", "", "print this text", SetTo(&o->help, true)},
  };
}

}  // namespace

absl::StatusOr<Options> ParseOptions(std::span<const char* const> args) {
  Options options;
  absl::Status status = resnet::ParseFlags(Table(&options), args);
  if (!status.ok()) return status;
  const bool cuda = options.device == resnet::DeviceKind::kCuda;
  if (cuda) options.always.Set("--device", "cuda");
  if (options.folder.empty()) {
    options.folder = cuda ? "runs/ladder_gpu" : "runs/ladder_cpu";
  }
  return options;
}

std::string HelpText() {
  Options options;
  return "Takes resnet from its baseline up the rungs of the published case "
         "study.\n"
         "usage: ladder [flags]     (defaults in brackets)\n" +
         resnet::DescribeFlags(Table(&options));
}

}  // namespace ladder
