// The commands of the Python package, which this program only describes: one
// table has all commands.
#include "commands.h"

namespace stepscope {
namespace {

constexpr Option kRunOptions[] = {
    {.name = "--skip",
     .value = "N",
     .help = "steps before the first recorded one (default: 10)"},
    {.name = "--steps", .value = "N", .help = "recorded steps (default: 10)"},
    {.name = "--out",
     .value = "DIR",
     .help = "log directory (default: runs/NAME, by the name of the program)"}};

}  // namespace

const Command kRunCommand = {
    .name = "run",
    .arguments = "SCRIPT.py|COMMAND ARGUMENT...",
    .summary = "record some steps of a training program as it is",
    .description =
        "Runs a training program as it is and records some of its steps, in "
        "every process that trains: stepscope run train.py --lr 0.1, stepscope "
        "run -m package.train, stepscope run torchrun --nproc-per-node 2 "
        "train.py. A step ends with the step() of an optimizer; in a program "
        "without one, with a batch of a DataLoader. The program's output and "
        "exit status are its own; two lines on standard error say what was "
        "recorded. Needs the Python package.",
    .options = kRunOptions,
    .exit_status =
        "the program's; 2 wrong usage, 127 the program could not be started."};

}  // namespace stepscope
