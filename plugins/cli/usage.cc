#include "usage.h"

namespace stepscope {

const char* const kUsage =
    R"(stepscope: says what to change in a PyTorch training loop, and what it is worth.

Usage:
  stepscope analyze PATH...    read traces, print what to fix first
  stepscope analyze --help     its options
  stepscope compare A B        what changed, beside what was predicted
  stepscope rules              what is looked for
  stepscope explain ID         one rule: when it fires, what to do
  stepscope info PATH...       what is in a trace: steps, devices, events, losses
  stepscope top PATH           operators, kernels and copies by time
  stepscope convert IN OUT     a trace in another format
  stepscope doctor             is what a recording needs here? says what to do
  stepscope --version
  stepscope --help

PATH is a trace of torch.profiler or of stepscope (.json, also with .gz or
.zst), an XSpace (.xplane.pb), a log directory of stepscope, or a folder with
one trace per rank.
)";

const char* const kAnalyzeUsage =
    R"(Usage: stepscope analyze [options] PATH...

Reads traces and prints what the steps spend their time on, and which changes
would buy the most. The traces of a job's ranks become one report, which says
who waits for whom, too. PATH is a trace file of torch.profiler or of stepscope
(.json, also with .gz or .zst), an XSpace (.xplane.pb), a log directory of
stepscope (its newest run, last cycle, all ranks), or a folder with one trace
per rank.

Options:
  --format text|json|markdown  form of the report (text); json is one object, or
                               a list of them for traces that are no one run
  --output FILE, -o FILE       write the report there instead of printing it
  --verbose, -v                notes, every example
  --rank N                     the report of that rank alone
  --run RUN                    a run of the log directory other than the newest
  --cycle N                    a cycle other than the last
  --help, -h                   this text

Colours are used on a terminal, unless NO_COLOR is set.
Exit status: 0 analysed, 1 nothing could be read or written, 2 wrong usage.
)";

const char* const kDoctorUsage =
    R"(Usage: stepscope doctor [--python PATH] [--viewers PATH]

Looks at what recording and viewing need (the driver, CUPTI, who holds it, the
right to profile, torch, TensorBoard and its plugins) and prints a line for
each: what was found and, where something is missing, what to do.

Options:
  --python PATH   the Python that has torch (the virtual environment's, else
                  python3)
  --viewers PATH  the Python that has TensorBoard (the same)
  --help, -h      this text

Exit status: 0 all is well, 1 something is missing, 2 wrong usage.
)";

}  // namespace stepscope
