#include "options.h"

#include <string_view>
#include <vector>

#include "resnet/flags.h"

namespace climb {
namespace {

using resnet::AtLeast;
using resnet::Flag;
using resnet::SetTo;
using resnet::Text;

auto Flags(measure::Settings* target) {
  return [=](std::string_view text) -> std::string {
    absl::StatusOr<measure::Settings> settings = measure::Settings::Parse(text);
    if (!settings.ok()) return "flags of resnet, as \"--batch 64 --bf16\"";
    *target = *std::move(settings);
    return "";
  };
}

auto Side(measure::Settings* target) {
  return [=](std::string_view text) -> std::string {
    int side = 0;
    std::string wanted = AtLeast(16, &side)(text);
    if (wanted.empty()) target->Set("--side", std::string(text));
    return wanted;
  };
}

std::vector<Flag> Table(Options* o) {
  auto title = [](const char* text) { return Flag{text, "", "", nullptr}; };
  return {
      title("The climb"),
      {"--start", "FLAGS", "flags of resnet to begin with (none)",
       Flags(&o->start)},
      {"--bad-habits", "",
       "begin with everything on that costs time for nothing, measure what "
       "each costs, and see which of it the report finds, in which order",
       SetTo(&o->bad_habits, true)},
      {"--side", "N", "side of the pictures, always (resnet's default)",
       Side(&o->always)},
      {"--max-changes", "N", "give up after so many (16)",
       AtLeast(1, &o->max_changes)},
      {"--no-sweep", "", "do not look for the best of all settings",
       SetTo(&o->sweep, false)},
      title("The measurement"),
      {"--pairs", "N", "interleaved pairs of runs per comparison (5)",
       AtLeast(2, &o->pairs)},
      {"--steps", "N", "steps per run (36)", AtLeast(8, &o->steps)},
      {"--profiles", "N",
       "profiles per step of the climb, of which the one of the middle step "
       "time is followed (3)",
       AtLeast(1, &o->profiles)},
      {"--active", "N", "steps that a profile records (10)",
       AtLeast(2, &o->active)},
      {"--sweep-steps", "N", "steps per run of the sweep's first round (8)",
       AtLeast(4, &o->sweep_steps)},
      title("The program"),
      {"--resnet", "FILE", "the program to measure (resnet beside this one)",
       Text(&o->resnet)},
      {"--work", "DIR",
       "where runs and profiles are kept; the same command goes on from there, "
       "so empty it after a change of the program (runs/climb)",
       Text(&o->folder)},
      {"--limit", "SECONDS",
       "stop after so long, with exit code 3; the same command goes on",
       AtLeast(1, &o->limit_s)},
      {"--json", "FILE", "write what was found to FILE", Text(&o->json)},
      {"--help", "", "print this text", SetTo(&o->help, true)},
  };
}

}  // namespace

absl::StatusOr<Options> ParseOptions(std::span<const char* const> args) {
  Options options;
  absl::Status status = resnet::ParseFlags(Table(&options), args);
  if (!status.ok()) return status;
  return options;
}

std::string HelpText() {
  Options options;
  return "Follows the advice about resnet, one finding after the other, and "
         "measures each.\nusage: climb [flags]     (defaults in brackets)\n" +
         resnet::DescribeFlags(Table(&options));
}

}  // namespace climb
