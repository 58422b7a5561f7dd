#include <stepscope/logdir.h>
#include <stepscope/read.h>
#include <stepscope/summary.h>

#include <vector>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "one_trace.h"
#include "output.h"

namespace stepscope {
namespace {

constexpr std::string_view kFormats[] = {"text", "json"};
constexpr Option kOptions[] = {
    {.name = "--format",
     .value = "FORMAT",
     .help = "output format (default: text). json is one object, or a list of "
             "objects for several traces",
     .choices = kFormats},
    {.name = "--output",
     .short_name = "-o",
     .value = "FILE",
     .help = "write to FILE"}};

// Removes the newlines at the end of an object, so that objects of a list can
// be joined by commas.
std::string WithoutLineEnd(std::string object) {
  while (!object.empty() && object.back() == '\n') object.pop_back();
  return object;
}

int InfoOf(const CommandWords& given) {
  const auto format = ChoiceOf(given, "--format", kFormats);
  if (!format.ok()) return UsageError(format.status());
  if (given.arguments.empty()) {
    return UsageError("info needs a trace: stepscope info PATH...");
  }
  std::vector<std::string> texts;
  // One damaged trace must not hide the others.
  bool all_read = true;
  for (const std::string& path : given.arguments) {
    absl::StatusOr<ResolvedRun> run = ResolvePath(path);
    if (!run.ok()) {
      PrintError(run.status());
      all_read = false;
      continue;
    }
    SaySkipped(*run);
    all_read &= run->unreadable.empty();
    // Traces are read and released one by one, so that a folder of many ranks
    // takes only as much memory as its largest trace.
    for (const std::string& file : run->trace_files) {
      const absl::StatusOr<Trace> trace = ReadTrace(file);
      if (!trace.ok()) {
        PrintError(trace.status());
        all_read = false;
        continue;
      }
      const TraceSummary summary = Summarize(*trace);
      texts.push_back(*format == 1 ? WithoutLineEnd(ToJson(summary))
                                   : ToText(summary));
    }
  }
  if (texts.empty()) return 1;
  std::string out;
  // One trace is an object and several are a list, even if they come from a
  // single folder.
  const bool is_list = *format == 1 && texts.size() > 1;
  for (const std::string& text : texts)
    out += (out.empty() ? "" : is_list ? ",\n" : "\n") + text;
  if (is_list) out = "[\n" + out + "\n]";
  if (*format == 1) out += "\n";
  const std::string output = given.value("--output");
  // Programs read JSON, and a line break would damage it.
  if (*format == 0) out = FitLines(out, WidthFor(output, 0));
  const int status = WriteResult(out, output);
  return all_read ? status : 1;
}

}  // namespace

const Command kInfoCommand = {
    .name = "info",
    .arguments = "PATH...",
    .summary = "list what a trace contains",
    .description =
        "Lists what a trace contains, without judging it: rank, devices, "
        "steps, busy time of each GPU, copies, waits for batches, events by "
        "kind, and what is missing. PATH is a trace file, a folder with one "
        "trace per rank, a log directory, or - for standard input.",
    .options = kOptions,
    .exit_status =
        "0 all traces were read, 1 one could not be read, 2 wrong usage.",
    .run = InfoOf};

}  // namespace stepscope
