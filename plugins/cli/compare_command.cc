#include <absl/status/status.h>
#include <stepscope/compare.h>
#include <stepscope/logdir.h>
#include <stepscope/read.h>

#include <cstdio>
#include <string>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "output.h"

namespace stepscope {
namespace {

constexpr OptionName kOptions[] = {
    {"--format"}, {"--output", true, "-o"}, {"--rank"}};
constexpr std::string_view kFormats[] = {"text", "json", "markdown"};

constexpr const char* kUsage =
    R"(Usage: stepscope compare [options] BEFORE AFTER

Compares two traces of one program, recorded before and after a change: the step
time and its spread, the gain predicted for the advice that was followed and the
gain measured, and what changed by cause, by operator and by kernel. BEFORE and
AFTER are trace files, folders or log directories.

Options:
  --format text|json|markdown  output format (default: text)
  --output FILE, -o FILE       write to FILE
  --rank N                     rank to compare (default: the first found)
  --help, -h                   print this text

Exit status: 0 compared, 1 a trace could not be read or has no steps, 2 wrong
usage.
)";

// The trace that `path` stands for.
absl::StatusOr<Trace> ReadOne(const std::string& path, int32_t rank) {
  const absl::StatusOr<ResolvedRun> run = ResolvePath(path);
  if (!run.ok()) return run.status();
  for (const std::string& file : run->trace_files) {
    absl::StatusOr<Trace> trace = ReadTrace(file);
    if (rank < 0 || !trace.ok() || trace->run().rank == rank) return trace;
  }
  return absl::NotFoundError(path + " has no trace of rank " +
                             std::to_string(rank));
}

std::string Text(const Comparison& comparison, size_t format) {
  if (format == 1) return ToJson(comparison);
  return format == 2 ? ToMarkdown(comparison) : ToText(comparison);
}

}  // namespace

int CompareCommand(Words words) {
  const auto given = ParseCommandWords(words, kOptions);
  if (!given.ok()) return UsageError(given.status());
  if (given->has("--help")) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (given->arguments.size() != 2) {
    return UsageError(
        "compare needs two traces: stepscope compare BEFORE AFTER");
  }
  const auto format = ChoiceOf(*given, "--format", kFormats);
  if (!format.ok()) return UsageError(format.status());
  const auto rank = NumberOf(*given, "--rank", -1);
  if (!rank.ok()) return UsageError(rank.status());
  const absl::StatusOr<Trace> before = ReadOne(given->arguments[0], *rank);
  const absl::StatusOr<Trace> after = ReadOne(given->arguments[1], *rank);
  for (const auto* trace : {&before, &after}) {
    if (!trace->ok()) PrintError(trace->status());
  }
  if (!before.ok() || !after.ok()) return 1;
  const Comparison comparison = Compare(*before, *after);
  const int status =
      WriteResult(Text(comparison, *format), given->value("--output"));
  return comparison.why_not.empty() ? status : 1;
}

}  // namespace stepscope
