#include <absl/status/status.h>
#include <stepscope/compare.h>
#include <stepscope/logdir.h>
#include <stepscope/read.h>

#include <charconv>
#include <cstdio>
#include <string>

#include "advice_commands.h"
#include "command_words.h"
#include "complain.h"
#include "output.h"

namespace stepscope {
namespace {

constexpr OptionName kCompareOptions[] = {
    {"--format"}, {"--output", true, "-o"}, {"--rank"}};
constexpr std::string_view kFormats[] = {"text", "json", "markdown"};

constexpr const char* kCompareUsage =
    R"(Usage: stepscope compare [options] BEFORE AFTER

Two traces of one program, before and after a change: the step, with its
spread; what was predicted for the advice that was followed, beside what was
measured; what changed by cause, by operator and by kernel. BEFORE and AFTER are
trace files or log directories.

Options:
  --rank N                the rank to compare, of runs with several (the first)
  --format text|json|markdown  form (text)
  --output FILE, -o FILE  write it there instead of printing it
  --help, -h              this text

Exit status: 0 compared, 1 not readable or without steps, 2 wrong usage.
)";

// The trace that `path` means.
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

}  // namespace

int CompareCommand(std::span<const std::string> words) {
  const absl::StatusOr<CommandWords> given =
      ParseCommandWords(words, kCompareOptions);
  if (!given.ok()) return UsageError(given.status());
  if (given->has("--help")) {
    std::fputs(kCompareUsage, stdout);
    return 0;
  }
  if (given->paths.size() != 2) {
    return UsageError(absl::InvalidArgumentError(
        "compare needs two traces: stepscope compare BEFORE AFTER"));
  }
  size_t format = 0;
  if (given->has("--format")) {
    const auto choice =
        ChoiceOf("--format", given->value("--format"), kFormats);
    if (!choice.ok()) return UsageError(choice.status());
    format = *choice;
  }
  int32_t rank = -1;
  if (given->has("--rank")) {
    const std::string text = given->value("--rank");
    const auto parsed =
        std::from_chars(text.data(), text.data() + text.size(), rank);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() ||
        rank < 0) {
      return UsageError(absl::InvalidArgumentError(
          "--rank is a number from 0 on, not '" + text + "'"));
    }
  }
  const absl::StatusOr<Trace> before = ReadOne(given->paths[0], rank);
  const absl::StatusOr<Trace> after = ReadOne(given->paths[1], rank);
  for (const auto* trace : {&before, &after}) {
    if (!trace->ok()) Complain(trace->status());
  }
  if (!before.ok() || !after.ok()) return 1;
  const Comparison comparison = Compare(*before, *after);
  const absl::Status written = WriteOut(format == 1   ? ToJson(comparison)
                                        : format == 2 ? ToMarkdown(comparison)
                                                      : ToText(comparison),
                                        given->value("--output"));
  if (!written.ok()) Complain(written);
  return written.ok() && comparison.why_not.empty() ? 0 : 1;
}

}  // namespace stepscope
